"""Latency, survival, coherence, alarms and curves on a video of twelve frames that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from polypscope.evaluation.detection import DetectionTable, TruthTable, TruthTableBuilder, evaluate_detection, match
from polypscope.evaluation.detection.alarms import find_runs
from polypscope.evaluation.detection.curves import threshold_curves
from polypscope.evaluation.detection.timing import survival_curve

STEP_S = 0.1


def study(*videos: str, identities: bool = True) -> TruthTable:
    """One letter per frame: '.' no polyp, a digit shows that polyp, 'b' polyps 1 and 2."""
    builder = TruthTableBuilder(identities=identities)
    for v, frames in enumerate(videos):
        builder.start_video(f"v{v}")
        for f, letter in enumerate(frames):
            builder.add_frame(f, f * STEP_S, 20, 40)
            for polyp in {".": "", "b": "12"}.get(letter, letter):
                builder.add_polyp(int(polyp), box=(0 if polyp == "1" else 20, 0, 10, 10))
    return builder.build()


def outputs(truth: TruthTable, *videos: str, name: str = "m") -> DetectionTable:
    """One letter per frame: '.' silent, a digit hits that polyp's place, 'x' a false alarm, 'X' two of them."""
    frame, x = [], []
    for f, letter in enumerate("".join(videos)):
        for place in {".": [], "1": [5.0], "2": [25.0], "x": [15.0], "X": [15.0, 35.0], "b": [5.0, 25.0]}[letter]:
            frame.append(f)
            x.append(place)
    return DetectionTable.from_columns(truth, name, frame=np.array(frame, int), x=np.array(x), y=np.full(len(x), 5.0))


def test_latency_re_appearance_and_fragments():
    truth = study("..1111..1111")
    result = evaluate_detection(truth, [outputs(truth, "x..1.1....11")]).methods[0]
    whole, first, second = result.timings
    assert (whole.latency_frames, whole.latency_s) == (1.0, pytest.approx(STEP_S))
    assert (whole.frames, whole.detected_frames, whole.exposure_frames) == (8, 4, 10)
    assert (first.latency_frames, first.fragments) == (1.0, 2)
    assert (second.latency_frames, second.fragments, second.first_frame) == (2.0, 1, 8)
    assert result.timing.reappearance_latency_frames_mean == 2.0
    assert result.timing.fragments_per_found_appearance == 1.5


def test_seconds_come_from_time_stamps():
    builder = TruthTableBuilder()
    builder.start_video("variable rate")
    for f, pts_s in enumerate((0.0, 0.1, 0.5, 0.6)):
        builder.add_frame(f, pts_s, 20, 40)
        builder.add_polyp(1, box=(0, 0, 10, 10))
    truth = builder.build()
    assert evaluate_detection(truth, [outputs(truth, "..11")]).methods[0].timing.latency_s_mean == pytest.approx(0.5)


def test_never_found_is_left_out_of_the_mean_but_not_of_the_rate():
    truth = study("1111", "1111", "....", "1111")
    summary = evaluate_detection(truth, [outputs(truth, "..1.", "....", "....", "1...")]).methods[0].timing
    assert (summary.polyps, summary.found, summary.missed) == (3, 2, 1)
    assert summary.latency_frames_mean == 1.0
    assert summary.latency_frames_sd == pytest.approx(np.std([2, 0], ddof=1))
    assert summary.detection_rate == pytest.approx(2 / 3)


def test_two_polyps_of_one_video_are_timed_apart_unless_identities_are_unknown():
    with_ids = study("bbbb")
    timed = evaluate_detection(with_ids, [outputs(with_ids, ".1.2")]).methods[0].timings
    assert [t.latency_frames for t in timed if t.appearance == 0] == [1.0, 3.0]
    without = study("bbbb", identities=False)
    timed = evaluate_detection(without, [outputs(without, ".1.2")]).methods[0].timings
    assert [t.latency_frames for t in timed if t.appearance == 0] == [1.0]


def test_coherence_counts_consecutive_pairs_only():
    truth = study("111.11", "......", "1111")
    result = evaluate_detection(truth, [outputs(truth, "11..11", "......", "1.11")]).methods[0]
    # v0: pairs 01, 12, 45; both found in 01 and 45. v2: pairs 01, 12, 23; both found in 23.
    assert result.video_metrics["coherence"].tolist() == pytest.approx([2 / 3, np.nan, 1 / 3], nan_ok=True)
    assert result.timing.coherence_mean == pytest.approx(0.5)
    assert result.timing.sequence_recall_mean == pytest.approx((4 / 5 + 3 / 4) / 2)


def test_survival_is_the_product_limit():
    # Freireich's 6-MP arm: 6, 6, 6, 6+, 7, 9+, 10, 10+, 11+, 13, 16, 17+, 19+, 20+, 22, 23, 25+, 32+, 32+, 34+, 35+
    events = np.array([6, 6, 6, 7, 10, 13, 16, 22, 23.0])
    censored = np.array([6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35.0])
    latency = np.concatenate([events, np.full(len(censored), np.nan)])
    curve = survival_curve(latency, np.concatenate([np.full(len(events), 99.0), censored]))
    assert curve.time.tolist() == [6, 7, 10, 13, 16, 22, 23]
    expected = [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]
    assert curve.not_yet_found == pytest.approx(expected, abs=5e-4)
    assert curve.at_risk.tolist() == [21, 17, 15, 12, 11, 7, 6]
    assert curve.median() == 23.0
    assert (curve.lower <= curve.not_yet_found).all()
    assert (curve.not_yet_found <= curve.upper).all()


def test_nothing_ever_found_has_an_empty_curve_and_no_median():
    curve = survival_curve(np.array([np.nan]), np.array([5.0]))
    assert curve.time.size == 0
    assert np.isnan(curve.median())


def test_alarms_are_runs_of_at_least_tau():
    truth = study("....1111....", "....")
    result = evaluate_detection(truth, [outputs(truth, "xx.xx11.xxxx", "x...")]).methods[0]
    by_tau = {round(a.tau_s, 3): a for a in result.alarms}
    # Runs without a true hit: 0-1, 3-4 (frame 4 shows the polyp but is missed), 8-11, and one frame of v1.
    assert (by_tau[0.0].true_alarms, by_tau[0.0].false_alarms) == (1, 4)
    assert (by_tau[0.2].true_alarms, by_tau[0.2].false_alarms) == (1, 3)
    assert (by_tau[0.5].true_alarms, by_tau[0.5].false_alarms) == (0, 0)
    assert by_tau[0.0].minutes == pytest.approx(16 * STEP_S / 60)
    assert by_tau[0.0].false_alarms_per_minute == pytest.approx(4 / (1.6 / 60))
    assert (by_tau[0.2].polyps_alarmed, by_tau[0.5].polyps_alarmed) == (1, 0)


def test_runs_do_not_cross_videos_or_gaps():
    truth = study("11", "11")
    assert find_runs(truth, np.ones(4, dtype=bool)).first.tolist() == [0, 2]


def scored(truth: TruthTable, *rows: tuple[int, float, float]) -> DetectionTable:
    frame, x, score = np.array(rows).T
    return DetectionTable.from_columns(truth, "m", frame=frame.astype(int), x=x, y=np.full(len(x), 5.0), score=score)


def test_curves_count_negatives_at_every_threshold():
    truth = study("11..")
    table = scored(truth, (0, 5.0, 0.9), (0, 6.0, 0.2), (1, 5.0, 0.4), (1, 15.0, 0.6), (2, 5.0, 0.8), (2, 15.0, 0.5))
    curves = threshold_curves(truth, table, match(truth, table))
    assert curves.threshold.tolist() == [0.9, 0.8, 0.6, 0.5, 0.4, 0.2]
    # tp, fp, tn, fn, negatives: at 0.5 the negative frame 2 has two false positives.
    assert curves.counts.tolist() == [
        [1, 0, 2, 1, 2], [1, 1, 1, 1, 2], [1, 2, 1, 1, 2], [1, 3, 1, 1, 2], [2, 3, 1, 0, 2], [2, 3, 1, 0, 2],
    ]  # fmt: skip
    assert curves.average_precision == pytest.approx(0.5 * 1.0 + 0.5 * 2 / 5)
    assert curves.presence_auc == pytest.approx((2 + 1) / 4)  # frame scores 0.9, 0.6 against 0.8 and silence
    assert curves.fp_per_frame[-1] == pytest.approx(3 / 4)
    assert curves.recall_at_fp_per_frame(0.5) == 0.5
    assert curves.best_f1() == (0.9, pytest.approx(2 / 3))


def test_presence_auc_agrees_with_the_area_under_the_curve():
    rng = np.random.default_rng(3)
    truth = study("1.1.1.11..1...1..1")
    frames = rng.integers(0, 18, 30)
    table = scored(truth, *((int(f), 5.0, float(s)) for f, s in zip(frames, rng.random(30).round(1), strict=True)))
    curves = threshold_curves(truth, table, match(truth, table))
    x = np.concatenate([[0], curves.presence_fpr, [1]])
    y = np.concatenate([[0], curves.presence_tpr, [1]])
    assert curves.presence_auc == pytest.approx(np.trapezoid(y, x))


def test_without_scores_there_is_one_operating_point():
    truth = study("11..")
    table = outputs(truth, "1xX.")
    result = evaluate_detection(truth, [table]).methods[0]
    assert not result.curves.is_curve
    assert result.curves.counts.tolist() == [[1, 3, 1, 1, 2]]
    assert result.curves.precision[0] == result.group("all").micro["precision"]


def test_firing_on_negatives_costs_everywhere():
    truth = study("..11", "....")
    clean = evaluate_detection(truth, [outputs(truth, "..11", "....")]).methods[0]
    noisy = evaluate_detection(truth, [outputs(truth, "..11", "xxxx")]).methods[0]
    for level in ("micro", "macro"):
        for metric in ("precision", "f1", "f2", "specificity", "frame_specificity"):
            before, after = getattr(clean.group("all"), level)[metric], getattr(noisy.group("all"), level)[metric]
            assert after < before, (level, metric)
    assert noisy.alarms[0].false_alarms_per_minute > 0
    assert noisy.curves.fp_per_minute[0] > 0
