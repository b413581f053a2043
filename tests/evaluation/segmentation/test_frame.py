"""Scores of a frame: equal to the published toolbox's reference outputs, and to slow versions written from definitions.

The slow versions loop over thresholds and pixels' maps with nothing clever in them; Hypothesis then looks for images on
which the fast ones differ. Sizes are tiny so that ties, empty quadrants and one-pixel objects are common.
"""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.ndimage import binary_erosion, convolve, distance_transform_edt

from polypscope.evaluation.segmentation import STILLS, SUNSEG, Spec, kernels, plain, score_frame
from polypscope.evaluation.segmentation.spec import CURVES, TOOLBOX
from polypscope.records.errors import RecordError

EPS = np.spacing(1)


def prepare(truth: np.ndarray, prediction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if truth.shape != prediction.shape:
        prediction = cv2.resize(prediction, truth.shape[::-1])
    x = prediction / 255
    if x.max() != x.min():
        x = (x - x.min()) / (x.max() - x.min())
    return truth > 128, x


def slow_curves(t: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
    """Each threshold by comparing the whole map with it."""
    out = {name: np.zeros(256) for name in CURVES}
    grey = (x * 255).astype(np.uint8)
    n = t.size
    for j, threshold in enumerate(np.linspace(1, 0, 256)):
        p = grey >= 255 - j
        tp, predicted, positives = np.sum(p & t), np.sum(p), np.sum(t)
        precision, recall = tp / max(predicted, 1), tp / max(positives, 1)
        if tp:
            out["F"][j] = 1.3 * precision * recall / (0.3 * precision + recall)
        if positives == 0:
            total = n - predicted
        elif positives == n:
            total = predicted
        else:
            a, b = p - predicted / n, t - positives / n
            total = np.sum((2 * a * b / (a**2 + b**2 + EPS) + 1) ** 2 / 4)
        out["E"][j] = total / (n - 1 + EPS)
        p = x >= threshold
        tp, predicted = np.sum(p & t), np.sum(p)
        if tp:
            out["Sen"][j] = tp / positives
            out["Dice"][j] = 2 * tp / (positives + predicted)
            out["IoU"][j] = tp / np.sum(p | t)
            negatives = np.sum(~t)
            out["Spe"][j] = np.sum(~p & ~t) / negatives if negatives else np.nan
    return out


def slow_structure(t: np.ndarray, x: np.ndarray) -> float:
    if not t.any():
        return float(1 - x.mean())
    if t.all():
        return float(x.mean())

    def object_part(values: np.ndarray) -> float:
        if values.size < 2:
            return np.nan
        return 2 * values.mean() / (values.mean() ** 2 + 1 + values.std(ddof=1) + EPS)

    def similarity(a: np.ndarray, b: np.ndarray) -> float:
        if a.size < 2:
            return np.nan
        ma, mb = a.mean(), b.mean()
        va, vb = np.sum((a - ma) ** 2) / (a.size - 1), np.sum((b - mb) ** 2) / (a.size - 1)
        upper = 4 * ma * mb * np.sum((a - ma) * (b - mb)) / (a.size - 1)
        lower = (ma**2 + mb**2) * (va + vb)
        if upper:
            return upper / (lower + EPS)
        return 1.0 if lower == 0 else 0.0

    rows, columns = np.nonzero(t)
    y, c = int(np.round(rows.mean())) + 1, int(np.round(columns.mean())) + 1
    region = 0.0
    for sy in (slice(0, y), slice(y, None)):
        for sx in (slice(0, c), slice(c, None)):
            region += t[sy, sx].size / t.size * similarity(x[sy, sx], t[sy, sx])
    share = t.mean()
    s = 0.5 * (share * object_part(x[t]) + (1 - share) * object_part(1 - x[~t])) + 0.5 * region
    return 0.0 if np.isnan(s) else max(0.0, float(s))


def slow_weighted_f(t: np.ndarray, x: np.ndarray) -> float:
    if not t.any():
        return 0.0
    distance, nearest = distance_transform_edt(~t, return_indices=True)
    error = np.abs(x - t)
    spread = np.where(t, error, error[nearest[0], nearest[1]])
    axis = np.arange(-3, 4)
    kernel = np.exp(-(axis[:, None] ** 2 + axis**2) / 50)
    smooth = convolve(spread, kernel / kernel.sum(), mode="constant")
    weighted = np.where(t, np.minimum(error, smooth), error * (2 - 0.5 ** (distance / 5)))
    tp, fp = t.sum() - weighted[t].sum(), weighted[~t].sum()
    recall, precision = 1 - weighted[t].mean(), tp / (tp + fp + EPS)
    return 2 * recall * precision / (recall + precision + EPS)


def slow_adaptive(t: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    p = x >= min(2 * x.mean(), 1)
    binary = slow_curves(t, p.astype(float)) if p.any() and not p.all() else None
    if binary is not None:
        return binary["E"][0], binary["F"][0]
    n, tp = t.size, np.sum(p & t)
    full = {0: n - p.sum(), n: p.sum()}
    e = full[t.sum()] / (n - 1 + EPS) if t.sum() in full else n * 0.25 / (n - 1 + EPS)
    precision, recall = tp / max(p.sum(), 1), tp / max(t.sum(), 1)
    return e, 1.3 * precision * recall / (0.3 * precision + recall) if tp else 0.0


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    height, width = draw(st.integers(2, 24)), draw(st.integers(2, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    truth = np.zeros((height, width), np.uint8)
    match draw(st.sampled_from(["noise", "box", "pixel", "empty", "full", "sparse"])):
        case "noise":
            truth = rng.integers(0, 256, truth.shape).astype(np.uint8)
        case "sparse":
            truth[rng.random(truth.shape) < 0.03] = 255
        case "box":
            truth[rng.integers(0, height) :, rng.integers(0, width) :][: rng.integers(1, height + 1)] = 255
        case "pixel":
            truth[rng.integers(0, height), rng.integers(0, width)] = 255
        case "full":
            truth[:] = 255
    shape = truth.shape if draw(st.booleans()) else (draw(st.integers(2, 24)), draw(st.integers(2, 24)))
    match draw(st.sampled_from(["noise", "few levels", "constant", "binary", "truth", "blocks"])):
        case "noise":
            prediction = rng.integers(0, 256, shape).astype(np.uint8)
        case "few levels":
            prediction = rng.choice(rng.integers(0, 256, 4), shape).astype(np.uint8)
        case "constant":
            prediction = np.full(shape, rng.integers(0, 256), np.uint8)
        case "binary":
            prediction = (rng.random(shape) < 0.3).astype(np.uint8) * np.uint8(255)
        case "truth":
            prediction = truth.copy()
        case "blocks":
            prediction = np.repeat(rng.integers(0, 256, (shape[0], 1)), shape[1], axis=1).astype(np.uint8)
    return truth, prediction


@settings(max_examples=150, deadline=None)
@given(pairs())
def test_every_measure_equals_its_slow_version(pair: tuple[np.ndarray, np.ndarray]) -> None:
    truth, prediction = pair
    score = score_frame(truth, prediction)
    t, x = prepare(truth, prediction)
    for name, curve in slow_curves(t, x).items():
        np.testing.assert_allclose(score.curves[name], curve, rtol=0, atol=1e-12, err_msg=name)
    assert score.scalars["MAE"] == pytest.approx(np.abs(x - t).mean(), abs=1e-12)
    assert score.scalars["Smeasure"] == pytest.approx(slow_structure(t, x), abs=1e-11)
    assert score.scalars["wFmeasure"] == pytest.approx(slow_weighted_f(t, x), abs=1e-11)
    e, f = slow_adaptive(t, x)
    assert (score.scalars["adpEm"], score.scalars["adpFm"]) == pytest.approx((e, f), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.tuples(st.integers(60, 300), st.integers(60, 300), st.integers(1, 254)), st.integers(0, 2**32 - 1))
def test_constant_quadrants_follow_numpys_rounding(case: tuple[int, int, int], seed: int) -> None:
    """In a quadrant of pure truth and constant prediction, S hangs on whether numpy's mean is exactly the constant."""
    height, width, grey = case
    rng = np.random.default_rng(seed)
    truth, prediction = np.zeros((height, width), np.uint8), np.full((height, width), grey, np.uint8)
    y, x = rng.integers(5, height - 5), rng.integers(5, width - 5)
    truth[y - 2 : y + 3, x - 2 : x + 3] = 255
    if rng.random() < 0.7:
        prediction[y, x], prediction[y + 1, x + 1] = 255, 0
    expected = slow_structure(*prepare(truth, prediction))
    assert score_frame(truth, prediction).scalars["Smeasure"] == pytest.approx(expected, abs=1e-11)


@settings(max_examples=60, deadline=None)
@given(pairs(), st.integers(0, 2**32 - 1))
def test_moving_both_images_moves_no_pixelwise_measure(pair: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    truth, prediction = pair
    prediction = prediction if truth.shape == prediction.shape else truth.T.copy().reshape(truth.shape)
    order = np.random.default_rng(seed).permutation(truth.size)
    a = score_frame(truth, prediction)
    b = score_frame(truth.ravel()[order].reshape(truth.shape), prediction.ravel()[order].reshape(truth.shape))
    np.testing.assert_array_equal(a.curves.array, b.curves.array)
    assert a.counts == b.counts


@settings(max_examples=60, deadline=None)
@given(pairs())
def test_values_stay_in_range(pair: tuple[np.ndarray, np.ndarray]) -> None:
    truth, prediction = pair
    score = score_frame(truth, prediction)
    for name in ("F", "Sen", "Dice", "IoU"):
        assert 0 <= score.curves[name].min() <= score.curves[name].max() <= 1
    assert (np.diff(score.curves["Sen"]) >= 0).all()
    assert (score.curves["IoU"] <= score.curves["Dice"]).all()
    assert 0 <= score.curves["E"].max() <= truth.size / (truth.size - 1)
    for name in ("Smeasure", "wFmeasure", "MAE", "adpFm"):
        assert -1e-12 <= score.scalars[name] <= 1 + 1e-12, name


@settings(max_examples=40, deadline=None)
@given(pairs())
def test_a_perfect_prediction_is_perfect(pair: tuple[np.ndarray, np.ndarray]) -> None:
    truth = np.where(pair[0] > 128, 255, 0).astype(np.uint8)
    score = score_frame(truth, truth)
    assert score.value("mDice") == score.value("mIoU") == score.value("boundaryF") == 1
    assert score.value("hausdorff95_px") == score.scalars["MAE"] == 0
    if truth.any():
        assert score.value("maxDice") == score.value("maxIoU") == 1
        assert score.scalars["wFmeasure"] == pytest.approx(1)


@settings(max_examples=60, deadline=None)
@given(pairs())
def test_numpy_functions_have_the_values_of_the_compiled_ones(pair: tuple[np.ndarray, np.ndarray]) -> None:
    truth, prediction = pair
    prediction = np.ascontiguousarray(np.resize(prediction, truth.shape))
    moments = plain.truth_moments(truth, 128)
    np.testing.assert_array_equal(kernels.truth_moments(truth, 128), moments)
    a, b = (k.quadrant_histograms(truth, prediction, 128, 1, 2) for k in (kernels, plain))
    np.testing.assert_array_equal(a, b)
    if moments[0]:
        level = np.arange(256) / 255
        sums = [k.weighted_error_sums(truth, prediction, 128, level, moments[3:]) for k in (kernels, plain)]
        np.testing.assert_allclose(*sums, rtol=1e-11, atol=1e-11)
    outlines = [k.outline_pixels(truth, 128) for k in (kernels, plain)]
    np.testing.assert_array_equal(*outlines)
    if len(outlines[0]):
        other = plain.outline_pixels(prediction, 100)
        if len(other):
            for x, y in zip(*(k.nearest_squared(outlines[0], other) for k in (kernels, plain)), strict=True):
                np.testing.assert_array_equal(x, y)


def test_without_numba_the_scores_are_the_same() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np\n"
        "from polypscope.evaluation.segmentation import frame\n"
        "assert frame.weighted_error_sums.__module__.endswith('plain')\n"
        "truth = np.zeros((40, 50), np.uint8); truth[10:30, 15:40] = 255\n"
        "prediction = np.arange(600, dtype=np.uint16).reshape(20, 30).astype(np.uint8)\n"
        "score = frame.score_frame(truth, prediction)\n"
        "print(repr([float(score.value(m)) for m in ('Smeasure', 'wFmeasure', 'maxDice', 'boundaryF')]))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    truth = np.zeros((40, 50), np.uint8)
    truth[10:30, 15:40] = 255
    score = score_frame(truth, np.arange(600, dtype=np.uint16).reshape(20, 30).astype(np.uint8))
    expected = [score.value(m) for m in ("Smeasure", "wFmeasure", "maxDice", "boundaryF")]
    assert json.loads(printed) == pytest.approx(expected, abs=1e-12)


def test_weighted_f_far_from_the_object_and_at_real_sizes() -> None:
    """Beyond the reach of the table, with holes and several objects, at sizes where rows are cut short."""
    rng = np.random.default_rng(5)
    truth = np.zeros((300, 700), np.uint8)
    for centre, radius in (((60, 40), 30), ((220, 130), 15), ((290, 20), 40)):
        cv2.circle(truth, centre[::-1], radius, 255, -1)
    truth[50:60, 30:45] = 0
    for prediction in (rng.integers(0, 256, truth.shape).astype(np.uint8), cv2.GaussianBlur(truth, (0, 0), 9)):
        t, x = prepare(truth, prediction)
        assert score_frame(truth, prediction).scalars["wFmeasure"] == pytest.approx(slow_weighted_f(t, x), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(pairs())
def test_outlines_equal_their_definition(pair: tuple[np.ndarray, np.ndarray]) -> None:
    truth, prediction = pair
    if truth.shape != prediction.shape:
        prediction = cv2.resize(prediction, truth.shape[::-1])
    t, p = truth > 128, prediction >= 128
    diagonal = np.hypot(*truth.shape)
    a, b = t & ~binary_erosion(t), p & ~binary_erosion(p)
    if a.any() and b.any():
        d = np.concatenate([distance_transform_edt(~b)[a], distance_transform_edt(~a)[b]])
        near = d <= np.ceil(0.008 * diagonal)
        recall, precision = near[: a.sum()].mean(), near[a.sum() :].mean()
        f, h = 2 * precision * recall / (precision + recall) if near.any() else 0.0, np.percentile(d, 95)
    else:
        f, h = (1.0, 0.0) if a.any() == b.any() else (0.0, diagonal)
    score = score_frame(truth, prediction)
    assert (score.value("boundaryF"), score.value("hausdorff95_px")) == pytest.approx((f, h))


def test_large_outlines_take_the_tree_with_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    truth, prediction = (rng.integers(0, 256, (60, 70)).astype(np.uint8) for _ in range(2))
    direct = score_frame(truth, prediction).outlines
    monkeypatch.setattr("polypscope.evaluation.segmentation.outline._PAIRS_BY_BRUTE_FORCE", 0)
    assert score_frame(truth, prediction).outlines == direct


@settings(max_examples=150, deadline=None)
@given(*[st.integers(1, 40)] * 4, st.integers(0, 2**32 - 1))
@example(256, 448, 1008, 1158, 0)
@example(20, 30, 10, 15, 0)
def test_resize_equals_opencv(h: int, w: int, height: int, width: int, seed: int) -> None:
    from polypscope.evaluation.segmentation.resize import _weights, resize_bilinear

    image = np.random.default_rng(seed).integers(0, 256, (h, w)).astype(np.uint8)
    expected = cv2.resize(image, (width, height))
    np.testing.assert_array_equal(resize_bilinear(image, (height, width)), expected)
    if (h, w) != (2 * height, 2 * width):
        tables = *_weights(w, width, True), *_weights(h, height, False)
        np.testing.assert_array_equal(plain.resize_rows(image, *tables), expected)


def test_published_reference_outputs(shared: Path) -> None:
    folder = shared / "vectors" / "sunseg"
    expected = json.loads((folder / "expected.json").read_text())["per_frame"]
    assert len(expected) >= 35
    with np.load(folder / "curves.npz") as curves:
        for name, values in expected.items():
            truth, prediction = (cv2.imread(str(folder / "pairs" / kind / name), 0) for kind in ("gt", "pred"))
            score = score_frame(truth, prediction)
            for curve in CURVES:
                np.testing.assert_array_equal(score.curves[curve], curves[f"{Path(name).stem}|{curve}"], err_msg=name)
            for measure in TOOLBOX:
                want = float(values[measure])
                assert score.value(measure) == pytest.approx(want, abs=1e-12, nan_ok=True), (name, measure)


TINY = np.array([[0, 0, 0, 0], [0, 200, 128, 0], [0, 255, 255, 0], [0, 0, 0, 0]], np.uint8)


@pytest.mark.parametrize(
    ("change", "measure", "before", "after"),
    [
        ({"truth_above": 127}, "mDice", 6 / 7, 1.0),
        ({"e_over_n_minus_1": False}, "maxEm", None, 1.0),
        ({"zero_without_overlap": False}, "meanSpe", None, None),
        ({"f_beta2": 1.0}, "meanFm", None, None),
        ({"weighted_f_beta2": 4.0}, "wFmeasure", None, None),
        ({"s_alpha": 0.9}, "Smeasure", None, None),
        ({"stretch_prediction": False}, "MAE", None, None),
        ({"binary_at": 0.99}, "mIoU", 3 / 4, 2 / 3),
        ({"boundary_tolerance": 0.9}, "boundaryF", None, 1.0),
    ],
)
def test_each_field_of_the_spec_changes_what_it_says(
    change: dict, measure: str, before: float | None, after: float | None
) -> None:
    prediction = np.where(TINY > 0, np.maximum(TINY, 131), 7).astype(np.uint8)
    if measure == "boundaryF":
        prediction = np.roll(prediction, 2, axis=0)
    if measure == "meanSpe":
        prediction = np.zeros_like(TINY)
        prediction[0, 0] = 255
    old, new = (score_frame(TINY, prediction, spec).value(measure) for spec in (SUNSEG, Spec(**change)))
    assert old != new
    assert before is None or old == pytest.approx(before)
    assert after is None or new == pytest.approx(after)


def test_s_rules_can_be_switched_off() -> None:
    pixel = np.zeros((9, 9), np.uint8)
    pixel[4, 4] = 255
    assert score_frame(pixel, pixel).scalars["Smeasure"] == 0
    assert np.isnan(score_frame(pixel, pixel, Spec(s_nan_is_zero=False)).scalars["Smeasure"])
    assert score_frame(np.zeros_like(pixel), pixel, Spec(weighted_f_of_empty_truth=1.0)).scalars["wFmeasure"] == 1


def test_some_levels_miss_their_own_threshold() -> None:
    """66 of 256 grey levels of a full-range map fail `level >= own threshold` in floating point."""
    level = np.arange(256) / 255
    assert np.sum(level < np.linspace(1, 0, 256)[::-1]) == 66
    truth = np.full((16, 16), 255, np.uint8)
    truth[0, 0] = 0
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    a, b = score_frame(truth, ramp), score_frame(truth, ramp, Spec(float_thresholds=False))
    assert np.sum(a.curves["Sen"] != b.curves["Sen"]) == 66


@pytest.mark.parametrize(
    ("truth", "prediction", "spec", "message"),
    [
        (TINY.astype(float), TINY, SUNSEG, r"truth: expected a uint8 \(H, W\) image, found float64 \(4, 4\)"),
        (TINY, np.dstack([TINY] * 3), SUNSEG, r"prediction: expected a uint8 \(H, W\) image, found uint8 \(4, 4, 3\)"),
        (TINY, TINY[:0], SUNSEG, r"found uint8 \(0, 4\)"),
        (TINY, None, SUNSEG, "found NoneType"),
        (TINY, TINY[:2], Spec(resize_prediction=False), r"expected the truth's shape \(4, 4\), found \(2, 4\)"),
    ],
)
def test_wrong_images_are_answered_in_words(truth: object, prediction: object, spec: Spec, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        score_frame(truth, prediction, spec)  # type: ignore[arg-type]


def test_remarks_name_what_was_special() -> None:
    empty = np.zeros((4, 4), np.uint8)
    assert score_frame(empty, empty[:2]).remarks == ("resized", "empty prediction", "empty truth")
    assert score_frame(empty + 255, empty + 3, STILLS).remarks == ("constant prediction", "full truth")


def test_a_broken_measure_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above must be able to fail: a union in Dice's denominator, as the paper prints it, is caught."""
    from polypscope.evaluation.segmentation import measures

    right = measures.overlap_curves

    def union_in_dice(hits, alarms, positives, size, zero):  # type: ignore[no-untyped-def]
        curves = right(hits, alarms, positives, size, zero)
        curves[2] = np.divide(2 * hits, positives + alarms, out=np.zeros(256), where=hits > 0)
        return curves

    monkeypatch.setattr(measures, "overlap_curves", union_in_dice)
    truth = np.zeros((8, 8), np.uint8)
    truth[2:6, 2:6] = 255
    broken = score_frame(truth, np.roll(truth, 1, axis=0))
    slow = slow_curves(*prepare(truth, np.roll(truth, 1, axis=0)))
    assert not np.allclose(broken.curves["Dice"], slow["Dice"])
