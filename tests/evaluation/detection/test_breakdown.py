"""Image challenges, Paris classes and concentration."""

from __future__ import annotations

import numpy as np
import pytest

from polypscope.evaluation.detection import DetectionTable, Labels, TruthTable, TruthTableBuilder, evaluate_detection
from polypscope.evaluation.detection.concentration import concentration_ratio, summarise_concentration
from polypscope.evaluation.detection.morphology import PARIS_CLASSES, normalise_paris
from polypscope.records.errors import RecordError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-Isp", "0-Isp"), ("0-ISp", "0-Isp"), ("0-lsp".replace("l", "I"), "0-Isp"), (" isp ", "0-Isp"),
        ("0-IIa+c", "0-IIa+IIc"), ("0-IIa+IIc", "0-IIa+IIc"), ("IIa + Is", "0-IIa+Is"), ("0–IIa", "0-IIa"),
        ("Paris 0-III", "0-III"), ("Type 0-Ip", "0-Ip"),
    ],
)  # fmt: skip
def test_paris_spelling(text, expected):
    assert normalise_paris(text) == expected
    assert normalise_paris(expected) == expected


def test_every_class_is_its_own_spelling():
    assert [normalise_paris(c) for c in PARIS_CLASSES] == list(PARIS_CLASSES)


@pytest.mark.parametrize("text", ["", "0-", "IV", "0-IId", "c", "flat"])
def test_other_labels_are_refused(text):
    with pytest.raises(RecordError, match="0-IIa"):
        normalise_paris(text)


def stills(*classes: tuple[str, ...]) -> TruthTable:
    builder = TruthTableBuilder(kind="stills", identities=False)
    builder.start_video("stills")
    for f, labels in enumerate(classes):
        builder.add_frame(f, 0.0, 20, 60)
        for n, label in enumerate(labels):
            builder.add_polyp(n + 1, box=(20 * n, 0, 10, 10), paris=label)
    return builder.build()


def at(truth: TruthTable, *rows: tuple[int, float]) -> DetectionTable:
    frame, x = np.array(rows).T
    return DetectionTable.from_columns(truth, "m", frame=frame.astype(int), x=x, y=np.full(len(x), 5.0))


def test_morphology_attributes_false_positives_to_the_classes_in_view():
    truth = stills(("0-Is",), ("0-IIa",), ("0-Is", "0-IIa"), ())
    result = evaluate_detection(truth, [at(truth, (0, 5), (0, 15), (1, 15), (2, 5), (2, 55), (3, 5))]).methods[0]
    rows = {r.paris: r for r in result.morphology}
    assert list(rows) == ["0-Is", "0-IIa"]
    assert (rows["0-Is"].counts.tp, rows["0-Is"].counts.fp, rows["0-Is"].counts.fn) == (2, 2, 0)
    assert (rows["0-IIa"].counts.tp, rows["0-IIa"].counts.fp, rows["0-IIa"].counts.fn) == (0, 2, 2)
    assert rows["0-Is"].precision == 0.5
    assert np.isnan(rows["0-Is"].latency_frames)


def labelled(frames: int, present: dict[str, list[int]]) -> Labels:
    values = np.zeros((frames, 3, len(present)))
    for c, rows in enumerate(present.values()):
        values[rows, :, c] = 1
    return Labels(("a", "b", "c"), tuple(present), values)


def test_majority_and_agreement():
    values = np.array([[[1], [1], [0]], [[0], [0], [0]], [[1], [0], [np.nan]], [[np.nan]] * 3])
    labels = Labels(("a", "b", "c"), ("overlay",), values)
    assert labels.majority().ravel().tolist() == [1, 0, -1, -1]
    row = labels.agreement()[0]
    assert (row.frames, row.present, row.undecided) == (3, 1, 1)
    assert row.unanimous == 0.5


def test_challenge_difference_is_with_minus_without_in_points():
    builder = TruthTableBuilder()
    for v in range(4):
        builder.start_video(f"v{v}")
        for f in range(6):
            builder.add_frame(f, f / 10, 20, 60)
            if f < 4:
                builder.add_polyp(1, box=(0, 0, 10, 10))
    truth = builder.build()
    rows = []
    for v in range(4):
        # polyp frames 0, 1 carry the challenge: one of two found; 2, 3 do not: both found, one with a false positive
        rows += [(6 * v, 5), (6 * v + 2, 5), (6 * v + 3, 5), (6 * v + 3, 30)]
        rows += [(6 * v + 4, 30)]  # negative frame 4 carries it and is fired on; 5 is silent
    labels = labelled(24, {"lumen": [6 * v + f for v in range(4) for f in (0, 1, 4)], "incomplete": [0]})
    result = evaluate_detection(truth, [at(truth, *rows)], labels=labels).methods[0]
    found = {(d.challenge, d.metric): d for d in result.challenges}
    assert found["lumen", "recall"].difference_pp == pytest.approx(-50)
    assert found["lumen", "precision"].difference_pp == pytest.approx(100 * (1 - 2 / 3))
    assert found["lumen", "specificity"].difference_pp == pytest.approx(-100)
    # All videos are alike, so no draw of videos can change the difference.
    assert (found["lumen", "recall"].low_pp, found["lumen", "recall"].high_pp) == (-50, -50)
    assert (found["lumen", "recall"].frames_with, found["lumen", "recall"].frames_without) == (8, 8)
    assert ("incomplete", "specificity") not in found  # can only be judged where a polyp is


def test_concentration_of_silent_maps_is_zero_not_missing():
    inside = np.zeros((4, 4), dtype=bool)
    inside[:2] = True
    assert concentration_ratio(np.zeros((4, 4)), inside) == 0.0
    assert concentration_ratio(np.ones((4, 4)), inside) == 0.5
    summary = summarise_concentration("m", np.array([np.nan, 0.2, 0.4]))
    assert (summary.frames, summary.mean) == (2, pytest.approx(0.3))
    assert summary.sd == pytest.approx(np.std([0.2, 0.4], ddof=1))
