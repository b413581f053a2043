"""Counting rules on frames small enough to check by hand, and the criteria against plain masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polypscope.evaluation.detection import (
    DetectionTable,
    TruthTable,
    TruthTableBuilder,
    detection_table,
    evaluate_detection,
    match,
    truth_table,
)
from polypscope.evaluation.detection.counts import Counts, FrameCounts, metrics_of
from polypscope.records import BinaryMask, Box, Detection, GroundTruth, Prediction, ProbabilityMap, TruePolyp
from polypscope.records.errors import PolypscopeError, UsageError


def one_frame(*polyps: tuple[int, int, int, int], size: tuple[int, int] = (40, 60)) -> TruthTable:
    builder = TruthTableBuilder()
    builder.start_video("v")
    builder.add_frame(0, 0.0, *size)
    for n, (x, y, w, h) in enumerate(polyps, start=1):
        builder.add_polyp(n, mask=np.ones((h, w), dtype=bool), x0=x, y0=y)
    return builder.build()


def points(truth: TruthTable, *xy: tuple[float, float]) -> DetectionTable:
    x, y = np.array(xy, dtype=float).reshape(-1, 2).T
    return DetectionTable.from_columns(truth, "m", frame=np.zeros(len(xy), dtype=int), x=x, y=y)


TWO = ((5, 5, 10, 10), (30, 20, 8, 8))


@pytest.mark.parametrize(
    ("polyps", "detections", "expected"),
    [
        (TWO, [], (0, 0, 0, 2)),  # silence: both polyps are missed
        (TWO, [(6, 6)], (1, 0, 0, 1)),
        (TWO, [(6, 6), (7, 7), (14, 14)], (1, 0, 0, 1)),  # duplicates inside one polyp are ignored
        (TWO, [(6, 6), (31, 21)], (2, 0, 0, 0)),
        (TWO, [(20, 20)], (0, 1, 0, 2)),  # beside the polyps: FP, and both stay FN
        (TWO, [(15, 5)], (0, 1, 0, 2)),  # the pixel right of the polyp
        (TWO, [(14.99, 5.99)], (1, 0, 0, 1)),  # int() truncates
        (TWO, [(60, 10), (10, 40), (500, 500)], (0, 3, 0, 2)),  # outside the image
        ((), [], (0, 0, 1, 0)),
        ((), [(1, 1)], (0, 1, 0, 0)),
        ((), [(1, 1), (2, 2), (3, 3)], (0, 3, 0, 0)),  # on a negative frame each detection costs
    ],
)
def test_counting_rules(polyps, detections, expected):
    truth = one_frame(*polyps)
    table = points(truth, *detections)
    counts = FrameCounts.of(truth, table, match(truth, table)).sum()
    assert (counts.tp, counts.fp, counts.tn, counts.fn) == expected


def test_x_is_the_column():
    truth = one_frame((50, 2, 5, 5))
    assert match(truth, points(truth, (52, 4))).detected.all()
    assert not match(truth, points(truth, (4, 52))).detected.any()


def test_one_point_inside_two_overlapping_polyps_finds_both():
    truth = one_frame((5, 5, 10, 10), (10, 10, 10, 10))
    assert match(truth, points(truth, (12, 12))).detected.tolist() == [True, True]


def test_point_in_mask_and_point_in_box_differ_in_the_corner():
    builder = TruthTableBuilder()
    builder.start_video("v")
    builder.add_frame(0, 0.0, 40, 60)
    builder.add_polyp(1, mask=np.tri(8, dtype=bool), x0=10, y0=10)
    truth = builder.build()
    corner = points(truth, (17, 10))
    assert not match(truth, corner).detected.any()
    assert match(truth, corner, criterion="point-in-box").detected.all()


def boxes(truth: TruthTable, *rows: tuple[float, float, float, float]) -> DetectionTable:
    table = np.array(rows)
    return DetectionTable.from_columns(
        truth, "m", frame=np.zeros(len(rows), dtype=int), x=table[:, 0], y=table[:, 1], boxes=table
    )


@pytest.mark.parametrize(
    ("box", "iou", "overlap"),
    [
        ((5, 5, 10, 10), True, True),
        ((5, 5, 10, 5), True, True),  # exactly one half
        ((5, 5, 10, 4.9), False, True),
        ((15, 5, 5, 5), False, False),  # touching is not overlapping
    ],
)
def test_iou_and_overlap_of_boxes(box, iou, overlap):
    builder = TruthTableBuilder()
    builder.start_video("v")
    builder.add_frame(0, 0.0, 40, 60)
    builder.add_polyp(1, box=(5, 5, 10, 10))
    truth = builder.build()
    assert bool(match(truth, boxes(truth, box), criterion="iou").detected[0]) is iou
    assert bool(match(truth, boxes(truth, box), criterion="overlap").detected[0]) is overlap


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_mask_iou_agrees_with_plain_arrays(seed):
    rng = np.random.default_rng(seed)
    true, said = (rng.random((12, 17)) < rng.uniform(0.05, 0.9) for _ in range(2))
    true[3, 4] = said[5, 6] = True
    labels = np.where(true, 1, 0).astype(np.uint16)
    truth = truth_table({"v": [GroundTruth(0, 0.0, (12, 17), (TruePolyp(1),), labels)]})
    shape = Detection((0.0, 0.0), mask=BinaryMask(said))
    table = detection_table(truth, "m", {"v": [Prediction(0, 0.0, (12, 17), (shape,))]})
    iou = (true & said).sum() / (true | said).sum()
    for threshold in (0.1, 0.3, 0.6):
        assert bool(match(truth, table, criterion="iou", iou_threshold=threshold).detected[0]) == (iou >= threshold)
    assert bool(match(truth, table, criterion="overlap").detected[0]) == bool((true & said).any())


def test_point_only_methods_are_refused_by_iou():
    truth = one_frame(*TWO)
    with pytest.raises(UsageError, match="gives points only"):
        match(truth, points(truth, (6, 6)), criterion="iou")


def test_records_become_columns():
    labels = np.zeros((20, 30), dtype=np.uint16)
    labels[2:6, 3:9] = 2
    labels[10:15, 20:25] = 7
    energy = np.zeros((20, 30), dtype=np.float32)
    energy[2:6, 3:9] = 0.75
    energy[0, 0] = 1.0
    frames = [
        GroundTruth(0, 0.0, (20, 30)),
        GroundTruth(4, 0.2, (20, 30), (TruePolyp(2, paris="0-Is"), TruePolyp(7)), labels),
        GroundTruth(5, 0.25, (20, 30), (TruePolyp(7, box=Box(1, 2, 3, 4)),)),
    ]
    truth = truth_table({"a": frames, "b": [GroundTruth(0, 0.0, (20, 30))]})
    assert truth.polyp_id.tolist() == [2, 7, 7]
    assert truth.paris == ("0-Is", None, None)
    assert truth.regions.area_px.tolist() == [24, 25, 12]
    table = detection_table(
        truth, "m", {"a": [Prediction(4, 0.2, (20, 30), (Detection((4.0, 3.0), score=0.5),), ProbabilityMap(energy))]}
    )
    assert table.took_part.tolist() == [True, False]
    assert table.concentration is not None
    assert table.concentration[1] == pytest.approx(18 / 19)
    result = evaluate_detection(truth, [table])
    assert result.methods[0].group("all").counts == Counts(tp=1, fp=0, tn=1, fn=2, negatives=1)
    assert any("1 of 2 videos" in note for note in result.notes)


def test_components_are_8_connected():
    labels = np.zeros((10, 10), dtype=np.uint16)
    labels[1, 1] = labels[2, 2] = labels[7, 7] = 1
    truth = truth_table({"a": [GroundTruth(0, 0.0, (10, 10), (), labels)]}, instances="components")
    assert truth.regions.area_px.tolist() == [2, 1]
    assert truth.identities is False


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda t: detection_table(t, "m", {"nope": []}), "rename the videos"),
        (lambda t: detection_table(t, "m", {"v": [Prediction(3, 0.0, (40, 60))]}), "has no frame 3"),
        (lambda t: evaluate_detection(t, [points(t), points(t)]), "name them apart"),
        (lambda t: match(t, points(t), criterion="hope"), "point-in-mask"),
        (lambda t: truth_table({"v": [GroundTruth(0, 0.0, (9, 9), (TruePolyp(1),))]}), "neither mask nor box"),
        (lambda t: truth_table({"v": [GroundTruth(1, 0.0, (9, 9)), GroundTruth(0, 1.0, (9, 9))]}), "that grow"),
    ],
)
def test_errors_are_sentences(make, words):
    with pytest.raises(PolypscopeError, match=words):
        make(one_frame())


counts = st.integers(0, 500)


@given(counts, counts, counts, counts, counts)
def test_ratios_stay_in_range_and_agree_with_the_table_form(tp, fp, tn, fn, extra):
    one = Counts(tp, fp, tn, fn, tn + extra)
    many = metrics_of(np.array([[tp, fp, tn, fn, tn + extra]]))
    for name, value in one.metrics().items():
        assert np.isnan(value) or 0 <= value <= 1
        assert value == pytest.approx(float(many[name][0]), nan_ok=True)
    assert one.metrics(0.0)["precision"] == (0.0 if tp + fp == 0 else one.precision())


def test_specificity_is_undefined_without_negative_frames():
    only_polyps = Counts(tp=3, fp=4, tn=0, fn=1, negatives=0)
    assert np.isnan(only_polyps.specificity())
    assert only_polyps.specificity(zero_division=1.0) == 1.0
