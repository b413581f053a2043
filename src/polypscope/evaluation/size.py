"""Sizes against truth, per polyp: error, bins and confusion, agreement, coverage, and what a constant would score.

Rows are polyps, never frames: a polyp seen in 300 frames is one polyp. Every table carries the row of the best constant
predictor, because on small polyps a constant looks good (the published clinical set has a mean size of 3.28 mm).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.agreement import BlandAltman, bland_altman
from polypscope.records.checks import positive
from polypscope.records.errors import RecordError
from polypscope.records.size import PART

__all__ = ["CLINICAL", "PAPER", "Bins", "SizeResult", "SizeRow", "SizeScores", "evaluate", "scores"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bins:
    """Size classes in mm. `upper` are the bounds; whether a bound belongs to the class below is `closed`."""

    names: tuple[str, ...]
    upper: tuple[float, ...]
    closed: tuple[bool, ...]

    def of(self, size_mm: float) -> int:
        """Index of the class of a size.

        >>> [CLINICAL.names[CLINICAL.of(s)] for s in (5.0, 5.1, 9.99, 10.0)]
        ['≤ 5', '5–10', '5–10', '≥ 10']
        """
        for i, (bound, closed) in enumerate(zip(self.upper, self.closed, strict=True)):
            if size_mm < bound or (closed and size_mm == bound):
                return i
        return len(self.upper)


CLINICAL: Final = Bins(("≤ 5", "5–10", "≥ 10"), (5.0, 10.0), (True, False))
PAPER: Final = Bins(("< 10", "10–20", "> 20"), (10.0, 20.0), (False, True))


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One polyp: its true size, estimates by column name, and the interval of the first column, if any."""

    polyp: str
    true_mm: float
    estimates_mm: Mapping[str, float]
    interval_mm: tuple[float, float] | None = None
    frames: int = 0
    flags: tuple[str, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class SizeScores:
    """What one column of estimates scores."""

    column: str
    polyps: int
    mae_mm: float
    rmse_mm: float
    bias_mm: float
    median_relative: float
    within_20_percent: float
    bin_accuracy: float
    missed_10_mm: float
    confusion: tuple[tuple[int, ...], ...]
    agreement: BlandAltman | None
    coverage: float
    interval_ratio: float


@dataclass(frozen=True, slots=True)
class SizeResult:
    """Rows per polyp and scores per column; the constant predictor is the last column.

    whole: the first column on the polyps that some frame showed whole, if there are others; of those, only a lower
    limit of the size can be known.
    """

    rows: tuple[SizeRow, ...]
    columns: tuple[SizeScores, ...]
    bins: Bins
    whole: SizeScores | None = None

    @property
    def lines(self) -> tuple[SizeScores, ...]:
        """What a table shows: all columns, and after the first the same on polyps seen whole."""
        return self.columns if self.whole is None else (self.columns[0], self.whole, *self.columns[1:])

    def column(self, name: str) -> SizeScores:
        """Scores of one column."""
        for scored in self.columns:
            if scored.column == name:
                return scored
        raise RecordError.of("size result", expected=f"one of {[c.column for c in self.columns]}", found=name)


def scores(
    column: str,
    true_mm: Array,
    estimated_mm: Array,
    *,
    bins: Bins = CLINICAL,
    intervals: Sequence[tuple[float, float] | None] | None = None,
) -> SizeScores:
    """Scores of estimates (n,) against truth (n,) in mm.

    missed_10_mm: share of polyps of 10 mm or more that were called smaller (NaN where there are none).
    """
    error = estimated_mm - true_mm
    true_bin, found_bin = [bins.of(v) for v in true_mm.tolist()], [bins.of(v) for v in estimated_mm.tolist()]
    count = len(bins.names)
    confusion = np.zeros((count, count), int)
    np.add.at(confusion, (true_bin, found_bin), 1)
    large = true_mm >= 10.0
    coverage = ratio = float("nan")
    known = (
        [] if intervals is None else [(t, i) for t, i in zip(true_mm.tolist(), intervals, strict=True) if i is not None]
    )
    if known:
        coverage = float(np.mean([low <= t <= high for t, (low, high) in known]))
        ratio = float(np.median([high / max(low, 1e-9) for _, (low, high) in known]))
    return SizeScores(
        column=column,
        polyps=len(true_mm),
        mae_mm=float(np.mean(np.abs(error))),
        rmse_mm=float(np.sqrt(np.mean(error**2))),
        bias_mm=float(np.mean(error)),
        median_relative=float(np.median(np.abs(error) / true_mm)),
        within_20_percent=float(np.mean(np.abs(error) <= 0.2 * true_mm)),
        bin_accuracy=float(np.trace(confusion) / len(true_mm)),
        missed_10_mm=float(np.mean(estimated_mm[large] < 10.0)) if large.any() else float("nan"),
        confusion=tuple(tuple(int(v) for v in row) for row in confusion),
        agreement=bland_altman(estimated_mm, true_mm) if len(true_mm) >= 3 else None,
        coverage=coverage,
        interval_ratio=ratio,
    )


def evaluate(rows: Sequence[SizeRow], *, bins: Bins = CLINICAL) -> SizeResult:
    """Score every column of estimates on the polyps that have it, and the best constant on all of them."""
    if not rows:
        raise RecordError.of("sizes", expected="at least one polyp with a true size", found="none")
    for row in rows:
        positive(f"true size of {row.polyp}", row.true_mm)
        for name, value in row.estimates_mm.items():
            positive(f"{name} of {row.polyp}", value)
    # An interval belongs to the first estimate of its row; a polyp that lacks that one must not pass it to another.
    measured = next((next(iter(row.estimates_mm)) for row in rows if row.interval_mm and row.estimates_mm), None)
    names = list(dict.fromkeys(name for row in rows for name in row.estimates_mm))
    names.sort(key=lambda name: name != measured)

    def scored(name: str, having: Sequence[SizeRow], title: str) -> SizeScores:
        true = np.array([row.true_mm for row in having])
        found = np.array([row.estimates_mm[name] for row in having])
        intervals = [row.interval_mm for row in having] if name == measured else None
        return scores(title, true, found, bins=bins, intervals=intervals)

    having = {name: [row for row in rows if name in row.estimates_mm] for name in names}
    columns = [scored(name, having[name], name) for name in names]
    first = having[names[0]] if names else []
    seen = [row for row in first if not PART & set(row.flags)]
    whole = scored(names[0], seen, f"{names[0]}, seen whole") if 0 < len(seen) < len(first) else None
    true = np.array([row.true_mm for row in rows])
    # The median is the constant with the least absolute error: nothing that ignores the picture can do better.
    columns.append(scores("constant", true, np.full(len(true), float(np.median(true))), bins=bins))
    return SizeResult(tuple(rows), tuple(columns), bins, whole)
