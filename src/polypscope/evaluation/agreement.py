"""How well several people, or a person and a machine, agree on the same measurements: ICC, Bland–Altman, consensus.

ICC after Shrout and Fleiss (1979) and McGraw and Wong (1996): two-way random effects, absolute agreement, of a single
rating (ICC(2,1)) and of the mean of all (ICC(2,k)), with McGraw and Wong's interval; and consistency (ICC(3,1)).
Bland and Altman (1986): mean difference and limits of agreement, each with its own confidence interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polypscope.records.errors import RecordError

__all__ = ["Agreement", "BlandAltman", "Consensus", "bland_altman", "consensus", "icc"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Intraclass correlations of n items rated by k people."""

    icc_single: float
    icc_single_interval: tuple[float, float]
    icc_mean: float
    icc_consistency: float
    items: int
    raters: int
    level: float


@dataclass(frozen=True, slots=True)
class BlandAltman:
    """Mean difference (bias) and limits of agreement, each with a confidence interval; in the unit of the data."""

    bias: float
    bias_interval: tuple[float, float]
    sd: float
    low: float
    low_interval: tuple[float, float]
    high: float
    high_interval: tuple[float, float]
    count: int
    slope: float


@dataclass(frozen=True, slots=True)
class Consensus:
    """One label from several annotators: their median, how far they spread, and whether a physician should look."""

    value: float
    sd: float
    span: float
    relative_sd: float
    annotators: int
    review: bool
    reason: str


def icc(ratings: ArrayLike, *, level: float = 0.95) -> Agreement:
    """Agreement of ratings (n items, k raters), complete.

    >>> shrout = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    >>> found = icc(shrout)
    >>> round(found.icc_single, 2), round(found.icc_mean, 2), round(found.icc_consistency, 2)
    (0.29, 0.62, 0.71)
    """
    from scipy.stats import f

    x = np.asarray(ratings, dtype=np.float64)
    if x.ndim != 2 or x.shape[0] < 3 or x.shape[1] < 2 or not np.isfinite(x).all():
        raise RecordError.of(
            "ratings",
            expected="a complete table of at least 3 items by 2 annotators",
            found=f"shape {x.shape}" + ("" if np.isfinite(x).all() else " with missing values"),
            hint="keep the items that every annotator rated",
        )
    n, k = x.shape
    grand = x.mean()
    rows = k * float(np.sum((x.mean(1) - grand) ** 2)) / (n - 1)
    columns = n * float(np.sum((x.mean(0) - grand) ** 2)) / (k - 1)
    left = float(np.sum((x - x.mean(1, keepdims=True) - x.mean(0, keepdims=True) + grand) ** 2))
    error = left / ((n - 1) * (k - 1))
    if rows <= 1e-15:
        raise RecordError.of("ratings", expected="items that differ", found="items all rated alike")
    single = (rows - error) / (rows + (k - 1) * error + k * (columns - error) / n)
    mean = (rows - error) / (rows + (columns - error) / n)
    consistency = (rows - error) / (rows + (k - 1) * error)
    interval = _icc_interval(single, rows, columns, error, n, k, level, f)
    return Agreement(single, interval, mean, consistency, n, k, level)


def _icc_interval(
    single: float, rows: float, columns: float, error: float, n: int, k: int, level: float, f: object
) -> tuple[float, float]:
    """McGraw and Wong's (1996) interval of ICC(A,1)."""
    if error <= 1e-15:
        return (1.0, 1.0) if columns <= 1e-15 else (single, single)
    a = k * single / (n * (1 - single))
    b = 1 + k * single * (n - 1) / (n * (1 - single))
    freedom = (a * columns + b * error) ** 2 / ((a * columns) ** 2 / (k - 1) + (b * error) ** 2 / ((n - 1) * (k - 1)))
    tail = (1 + level) / 2
    upper_f = float(f.ppf(tail, n - 1, freedom))  # type: ignore[attr-defined]
    lower_f = float(f.ppf(tail, freedom, n - 1))  # type: ignore[attr-defined]
    base = k * columns + (k * n - k - n) * error
    low = n * (rows - upper_f * error) / (upper_f * base + n * rows)
    high = n * (lower_f * rows - error) / (base + n * lower_f * rows)
    return float(low), float(high)


def bland_altman(first: ArrayLike, second: ArrayLike, *, level: float = 0.95) -> BlandAltman:
    """Differences first - second: bias, 95 % limits of agreement and their intervals (Bland and Altman 1986).

    `slope` is the regression of difference on mean: far from zero, the error grows with size.

    >>> found = bland_altman([5.0, 6.0, 7.0, 8.0], [4.5, 6.5, 6.5, 7.5])
    >>> round(found.bias, 3), round(found.high, 2)
    (0.25, 1.23)
    """
    from scipy.stats import t

    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 3:
        raise RecordError.of(
            "Bland–Altman", expected="two lists of one length, 3 or more", found=f"{a.shape}, {b.shape}"
        )
    difference, mean = a - b, (a + b) / 2
    n, bias, sd = len(a), float((a - b).mean()), float((a - b).std(ddof=1))
    quantile = float(t.ppf((1 + level) / 2, n - 1))
    of_bias = quantile * sd / np.sqrt(n)
    of_limit = quantile * sd * np.sqrt(1 / n + 1.96**2 / (2 * (n - 1)))
    low, high = bias - 1.96 * sd, bias + 1.96 * sd
    spread = float(np.sum((mean - mean.mean()) ** 2))
    slope = float(np.sum((mean - mean.mean()) * difference) / spread) if spread > 0 else 0.0
    return BlandAltman(
        bias,
        (bias - of_bias, bias + of_bias),
        sd,
        low,
        (low - of_limit, low + of_limit),
        high,
        (high - of_limit, high + of_limit),
        n,
        slope,
    )


def consensus(
    values_mm: ArrayLike,
    *,
    review_mm: float = 1.0,
    review_fraction: float = 0.15,
    bounds_mm: tuple[float, ...] = (5.0, 10.0),
) -> Consensus:
    """The label that several annotators' values give, and whether a physician should review it.

    Review is asked for when there is one annotator only, when the spread exceeds both `review_mm` and `review_fraction`
    of the value, or when the annotators fall on different sides of a clinical bound.

    >>> consensus([4.6, 4.9, 5.4]).reason
    'annotators fall on both sides of 5 mm'
    """
    x = np.asarray(values_mm, dtype=np.float64)
    if x.ndim != 1 or len(x) == 0 or not np.isfinite(x).all():
        raise RecordError.of("annotations", expected="at least one value in mm", found=str(x.tolist()))
    value, span = float(np.median(x)), float(np.ptp(x))
    sd = float(x.std(ddof=1)) if len(x) > 1 else float("nan")
    crossed = [b for b in bounds_mm if x.min() < b <= x.max()]
    reason = ""
    if len(x) == 1:
        reason = "one annotator only"
    elif span > review_mm and span > review_fraction * value:
        reason = f"annotators differ by {span:.2f} mm"
    elif crossed:
        reason = f"annotators fall on both sides of {crossed[0]:g} mm"
    return Consensus(value, sd, span, sd / value if value > 0 else float("nan"), len(x), bool(reason), reason)
