"""The published measures as functions of histograms, in the published toolbox's order of operations.

The six curves are compared bit by bit with the toolbox, so the arithmetic here is deliberately spelled as there: which
numbers are divided first, and that a scalar is squared by `** 2` and an array by itself, decide the last digit.
S, MAE and weighted F are sums over pixels, where only the order of additions differs (below 1e-12).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EPS = float(np.spacing(1))


@lru_cache(maxsize=4096)
def stretched_levels(low: int, high: int) -> Floats:
    """The value in [0, 1] of each grey level when `low` becomes 0 and `high` 1 (or all are kept when they are equal).

    Levels outside the range do not occur in the map; they are clipped so that tables stay in [0, 1].
    """
    level = np.arange(256) / 255
    if low != high:
        level = np.clip((level - level[low]) / (level[high] - level[low]), 0.0, 1.0)
    level.flags.writeable = False
    return level


@lru_cache(maxsize=4096)
def _threshold_index(low: int, high: int, float_thresholds: bool) -> Ints:
    """For each grey level the first (strictest) of the 256 thresholds that it reaches."""
    level = stretched_levels(low, high)
    if float_thresholds:
        return np.searchsorted(-np.linspace(1, 0, 256), -level, side="left").astype(np.int64)
    return 255 - (level * 255).astype(np.uint8).astype(np.int64)


def at_thresholds(histogram: Ints, low: int, high: int, *, float_thresholds: bool) -> Ints:
    """How many pixels of a grey-level histogram, int64 (256,), are positive at each threshold, strictest first."""
    index = _threshold_index(low, high, float_thresholds)
    # float64 holds every count below 2**53 exactly
    return np.cumsum(np.bincount(index, weights=histogram, minlength=256)).astype(np.int64)


def f_curve(hits: Ints, alarms: Ints, positives: int, beta2: float) -> Floats:
    """F at each threshold from true positives and false positives, int64 (256,)."""
    predicted = hits + alarms
    predicted[predicted == 0] = 1
    precision = hits / predicted
    recall = hits / max(positives, 1)
    numerator = (1 + beta2) * precision * recall
    denominator: Floats = np.where(numerator == 0, 1, beta2 * precision + recall)
    return numerator / denominator


def overlap_curves(hits: Ints, alarms: Ints, positives: int, size: int, zero_without_overlap: bool) -> list[Floats]:
    """Sensitivity, specificity, Dice and IoU at each threshold. Specificity is NaN (0/0) when all is truth."""
    predicted = hits + alarms
    misses = positives - hits
    rejections = (size - predicted) - misses
    with np.errstate(divide="ignore", invalid="ignore"):
        curves = [
            hits / positives,
            rejections / (rejections + alarms),
            2 * hits / (positives + predicted),
            hits / (misses + predicted),
        ]
    for i, curve in enumerate(curves):
        if zero_without_overlap or i != 1:
            curve[hits == 0] = 0.0
    return curves


def e_curve(hits: Ints, alarms: Ints, positives: int, size: int, n_minus_1: bool) -> Floats:
    """Enhanced-alignment measure at each threshold."""
    predicted = hits + alarms
    rejected = size - predicted
    if positives == 0:
        total = rejected
    elif positives == size:
        total = predicted
    else:
        misses = positives - hits
        parts = (hits, alarms, misses, rejected - misses)
        mean_prediction = predicted / size
        mean_truth = positives / size
        terms = np.empty((4, 256))
        for i, (part, p, t) in enumerate(zip(parts, *_demeaned(mean_prediction, mean_truth), strict=True)):
            align = 2 * (p * t) / (p**2 + t**2 + EPS)
            terms[i] = (align + 1) ** 2 / 4 * part
        total = terms.sum(axis=0)
    return np.asarray(total / (size - 1 + EPS if n_minus_1 else size), dtype=np.float64)


def e_at(hits: int, alarms: int, positives: int, size: int, n_minus_1: bool) -> float:
    """Enhanced-alignment measure of one binary map, in scalar arithmetic."""
    predicted = hits + alarms
    rejected = size - predicted
    total: float
    if positives == 0:
        total = rejected
    elif positives == size:
        total = predicted
    else:
        misses = positives - hits
        total = 0.0
        values = _demeaned(predicted / size, positives / size)
        for part, p, t in zip((hits, alarms, misses, rejected - misses), *values, strict=True):
            align = 2 * (p * t) / (p**2 + t**2 + EPS)
            total += (align + 1) ** 2 / 4 * part
    return float(total / (size - 1 + EPS if n_minus_1 else size))


def _demeaned(prediction: Any, truth: float) -> tuple[tuple[Any, ...], tuple[float, ...]]:
    """Prediction and truth less their means, for the pairs (1, 1), (1, 0), (0, 1), (0, 0)."""
    p1, p0, t1, t0 = 1 - prediction, 0 - prediction, 1 - truth, 0 - truth
    return (p1, p1, p0, p0), (t1, t0, t1, t0)


def f_at(hits: int, alarms: int, positives: int, beta2: float) -> float:
    """F of one binary map."""
    if hits == 0:
        return 0.0
    precision, recall = hits / (hits + alarms), hits / positives
    return (1 + beta2) * precision * recall / (beta2 * precision + recall)


def structure(
    quadrants: Ints, level: Floats, shape: tuple[int, int], split: tuple[int, int], alpha: float, as_summed: bool
) -> float:
    """Structure measure of a truth that is neither empty nor full; NaN where its formula is undefined.

    quadrants: (4, 2, 256) histograms; split: (row, column) where the quadrants meet.
    """
    outside, inside = quadrants.sum(axis=0)
    positives, size = int(inside.sum()), shape[0] * shape[1]
    mean_in, spread_in = _mean_and_spread(inside, level)
    mean_out, spread_out = _mean_and_spread(outside, level)
    share = positives / size
    objects = share * _object(mean_in, spread_in) + (1 - share) * _object(1 - mean_out, spread_out)
    y, x = split
    height, width = shape
    w1, w2, w3 = x * y / size, y * (width - x) / size, (height - y) * x / size
    windows = [(slice(0, y), slice(0, x)), (slice(0, y), slice(x, width)),
               (slice(y, height), slice(0, x)), (slice(y, height), slice(x, width))]  # fmt: skip
    region = 0.0
    for weight, histograms, window in zip((w1, w2, w3, 1 - w1 - w2 - w3), quadrants, windows, strict=True):
        region += weight * _similarity(histograms, level, shape, window, as_summed)
    return alpha * objects + (1 - alpha) * region


def _mean_and_spread(histogram: Ints, level: Floats) -> tuple[float, float]:
    """Mean and standard deviation (n - 1) of the levels; the latter NaN for a single pixel."""
    n = int(histogram.sum())
    mean = float(histogram @ level) / n
    return mean, float(np.sqrt(histogram @ (level - mean) ** 2 / (n - 1))) if n > 1 else float("nan")


def _object(mean: float, spread: float) -> float:
    return 2 * mean / (mean**2 + 1 + spread + EPS)


def _similarity(
    histograms: Ints, level: Floats, shape: tuple[int, int], window: tuple[slice, slice], as_summed: bool
) -> float:
    outside, inside = histograms
    n, positives = int(histograms.sum()), int(inside.sum())
    if n < 2:
        return float("nan")
    both = outside + inside
    if positives in (0, n):
        # The covariance is exactly 0; the score is 1 if the variance of the prediction is, too, else 0.
        present = np.flatnonzero(both)
        values = level[present]
        if values.min() != values.max():
            return 0.0
        constant = float(values[0])
        if constant in (0.0, 1.0) or not as_summed:
            return 1.0
        # numpy's order of summation in a view of the full map decides whether the mean is exactly the constant.
        return float(np.full(shape, constant)[window].mean() == constant)
    x, y = float(both @ level) / n, positives / n
    deviation = level - x
    variance_x = float(both @ deviation**2) / (n - 1)
    variance_y = (positives * (1 - y) ** 2 + (n - positives) * y**2) / (n - 1)
    covariance = (float(inside @ deviation) * (1 - y) - float(outside @ deviation) * y) / (n - 1)
    upper = 4 * x * y * covariance
    return upper / ((x**2 + y**2) * (variance_x + variance_y) + EPS) if upper != 0 else 0.0


def weighted_f(inside_error: float, faded: float, outside: Ints, level: Floats, positives: int, beta2: float) -> float:
    """Weighted F from the two positional sums and the histogram outside the truth."""
    true_positive = positives - inside_error
    false_positive = 2.0 * float(outside @ level) - faded
    recall = 1 - inside_error / positives
    precision = true_positive / (true_positive + false_positive + EPS)
    return (1 + beta2) * recall * precision / (recall + beta2 * precision + EPS)
