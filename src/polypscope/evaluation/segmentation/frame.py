"""Scores of one frame: `score_frame(truth, prediction)` on 8-bit grey images, by any of the protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.segmentation import measures
from polypscope.evaluation.segmentation.outline import Outlines, compare_outlines
from polypscope.evaluation.segmentation.overlap import Counts
from polypscope.evaluation.segmentation.resize import resize_bilinear
from polypscope.evaluation.segmentation.spec import CURVES, SUNSEG, Spec, curve_of
from polypscope.records.errors import RecordError

try:
    from polypscope.evaluation.segmentation.kernels import quadrant_histograms, truth_moments, weighted_error_sums
except ImportError:  # no numba on this machine: the same values, more slowly
    from polypscope.evaluation.segmentation.plain import quadrant_histograms, truth_moments, weighted_error_sums

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]


class Curves(Mapping[str, Floats]):
    """The six threshold curves by name, one float64 (6, 256) array inside."""

    __slots__ = ("array",)

    def __init__(self, array: Floats) -> None:
        self.array = array

    def __getitem__(self, name: str) -> Floats:
        return self.array[CURVES.index(name)] if name in CURVES else self._missing(name)

    def _missing(self, name: str) -> Floats:
        raise KeyError(f"{name!r} is none of {', '.join(CURVES)}")

    def __iter__(self) -> Iterator[str]:
        return iter(CURVES)

    def __len__(self) -> int:
        return len(CURVES)


@dataclass(frozen=True, eq=False)
class FrameScore:
    """All scores of one frame.

    scalars: Smeasure, wFmeasure, MAE, adpEm, adpFm. curves: E, F, Sen, Spe, Dice, IoU at 256 thresholds, strictest
    first. counts: pixels of the prediction cut at `spec.binary_at`. outlines: ours, None when the spec leaves it out.
    remarks: what was special (resized, empty truth, full truth, constant prediction).
    """

    scalars: Mapping[str, float]
    curves: Curves
    counts: Counts
    outlines: Outlines | None
    remarks: tuple[str, ...]
    empty_pair: float = 1.0

    def value(self, name: str) -> float:
        """A measure by its name: `maxDice`, `meanEm`, `Smeasure`, `mIoU`, `boundaryF` …"""
        reduced = curve_of(name)
        if reduced:
            curve, how = reduced
            return float(self.curves[curve].mean() if how == "mean" else self.curves[curve].max())
        if name in self.scalars:
            return self.scalars[name]
        binary = {
            "mDice": self.counts.dice, "F1": self.counts.dice, "mIoU": self.counts.iou,
            "recall": self.counts.recall, "precision": self.counts.precision,
        }  # fmt: skip
        if name in binary:
            return binary[name](self.empty_pair)
        if self.outlines is not None and name in ("boundaryF", "hausdorff95_px"):
            return self.outlines.boundary_f if name == "boundaryF" else self.outlines.hausdorff95_px
        raise KeyError(f"{name!r} is not a measure of a frame")


def score_frame(truth: Bytes, prediction: Bytes, spec: Spec = SUNSEG) -> FrameScore:
    """Compare a predicted map with the truth, both uint8 (H, W) grey images.

    >>> truth = np.zeros((40, 40), np.uint8)
    >>> truth[10:30, 12:28] = 255
    >>> score = score_frame(truth, truth)
    >>> round(score.value("maxDice"), 3), round(score.value("meanEm"), 3), score.value("mIoU")
    (1.0, 0.998, 1.0)
    """
    truth, prediction = _grey("truth", truth), _grey("prediction", prediction)
    remarks = []
    if truth.shape != prediction.shape:
        if not spec.resize_prediction:
            expected, found = f"the truth's shape {truth.shape}", str(prediction.shape)
            raise RecordError.of("prediction", expected=expected, found=found, hint="resize it, or allow resizing")
        prediction = resize_bilinear(prediction, truth.shape)
        remarks.append("resized")
    height, width = truth.shape
    size = height * width
    moments = truth_moments(truth, spec.truth_above)
    positives = int(moments[0])
    split_y, split_x = _split(moments, truth.shape)
    quadrants = quadrant_histograms(truth, prediction, spec.truth_above, split_y, split_x)
    outside, inside = quadrants.sum(axis=0)
    present = np.flatnonzero(outside + inside)
    low, high = int(present[0]), int(present[-1])
    if low == high:
        remarks.append("empty prediction" if high == 0 else "constant prediction")
    if positives in (0, size):
        remarks.append("full truth" if positives else "empty truth")
    if not spec.stretch_prediction:
        low = high = 0  # levels are kept as they are
    level = measures.stretched_levels(low, high)
    scalars = {
        "Smeasure": _structure(quadrants, level, truth.shape, (split_y, split_x), positives, spec),
        "wFmeasure": spec.weighted_f_of_empty_truth,
        "MAE": (float(inside @ (1 - level)) + float(outside @ level)) / size,
    }
    if positives:
        error, faded = weighted_error_sums(truth, prediction, spec.truth_above, level, moments[3:])
        scalars["wFmeasure"] = measures.weighted_f(error, faded, outside, level, positives, spec.weighted_f_beta2)
    scalars["adpEm"], scalars["adpFm"] = _adaptive(inside, outside, level, prediction, positives, spec)
    cut = int(np.ceil(spec.binary_at * 255))
    tp, fp = int(inside[cut:].sum()), int(outside[cut:].sum())
    counts = Counts(tp=tp, fp=fp, fn=positives - tp, tn=size - positives - fp)
    outlines = None
    if spec.outlines:
        outlines = compare_outlines(truth, spec.truth_above, prediction, cut - 1, spec.boundary_tolerance)
    curves = _curves(inside, outside, low, high, positives, size, spec)
    return FrameScore(scalars, curves, counts, outlines, tuple(remarks), spec.empty_pair)


def _grey(name: str, image: Bytes) -> Bytes:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 2 or not image.size:
        found = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        hint = "give grey levels from 0 to 255"
        raise RecordError.of(name, expected="a uint8 (H, W) image", found=found, hint=hint)
    return np.ascontiguousarray(image)


def _split(moments: NDArray[np.int64], shape: tuple[int, int]) -> tuple[int, int]:
    """Row and column after the truth's rounded centroid (the image's centre without truth)."""
    count, sum_x, sum_y = (int(v) for v in moments[:3])
    if count == 0:
        return round(shape[0] / 2) + 1, round(shape[1] / 2) + 1
    return round(sum_y / count) + 1, round(sum_x / count) + 1


def _structure(
    quadrants: NDArray[np.int64], level: Floats, shape: tuple[int, int], split: tuple[int, int], n: int, spec: Spec
) -> float:
    size = shape[0] * shape[1]
    if n in (0, size):
        mean = float(quadrants.sum(axis=(0, 1)) @ level) / size
        return mean if n else 1 - mean
    s = measures.structure(quadrants, level, shape, split, spec.s_alpha, spec.s_constant_quadrant_as_summed)
    if np.isnan(s):
        return 0.0 if spec.s_nan_is_zero else s
    return max(0.0, s)


def _adaptive(
    inside: NDArray[np.int64], outside: NDArray[np.int64], level: Floats, prediction: Bytes, positives: int, spec: Spec
) -> tuple[float, float]:
    """E and F of the map cut at twice its mean."""
    both = inside + outside
    mean = float(both @ level) / prediction.size
    if np.any(np.abs(level[both > 0] - 2 * mean) < 1e-9):
        # A level lies on the threshold, so that the last digit of the mean decides: sum as the toolbox does.
        mean = float(level[prediction].mean())
    chosen = level >= min(2 * mean, 1.0)
    hits, alarms = int(inside[chosen].sum()), int(outside[chosen].sum())
    e = measures.e_at(hits, alarms, positives, prediction.size, spec.e_over_n_minus_1)
    return e, measures.f_at(hits, alarms, positives, spec.f_beta2)


def _curves(
    inside: NDArray[np.int64], outside: NDArray[np.int64], low: int, high: int, positives: int, size: int, spec: Spec
) -> Curves:
    array = np.empty((len(CURVES), 256))
    hits, alarms = (measures.at_thresholds(h, low, high, float_thresholds=False) for h in (inside, outside))
    array[0] = measures.e_curve(hits, alarms, positives, size, spec.e_over_n_minus_1)
    array[1] = measures.f_curve(hits, alarms, positives, spec.f_beta2)
    if spec.float_thresholds:
        hits, alarms = (measures.at_thresholds(h, low, high, float_thresholds=True) for h in (inside, outside))
    array[2:] = measures.overlap_curves(hits, alarms, positives, size, spec.zero_without_overlap)
    return Curves(array)
