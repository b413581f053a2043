"""Boosted decision stumps (GentleBoost, Friedman, Hastie and Tibshirani 2000): small, exact to store, no library.

Features are cut into bins at their quantiles, so that a round is one pass over integers whatever the number of
pictures. A trained model is four arrays, which a file can hold without pickling anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from polypscope.records.errors import RecordError

__all__ = ["Stumps", "fit_stumps"]


@dataclass(frozen=True, eq=False)
class Stumps:
    """A sum of stumps: `below[r]` where feature[r] < threshold[r], else `above[r]`."""

    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    below: NDArray[np.float64]
    above: NDArray[np.float64]

    def __post_init__(self) -> None:
        lengths = {len(self.feature), len(self.threshold), len(self.below), len(self.above)}
        if len(lengths) != 1 or (len(self.feature) and int(self.feature.min()) < 0):
            raise RecordError.of("Stumps", expected="four arrays of one length", found=f"lengths {sorted(lengths)}")

    def margin(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far each row of `values` (n, features) is on the side of the positives."""
        low = values[:, self.feature] < self.threshold
        return np.asarray(np.where(low, self.below, self.above).sum(axis=1))

    def probability(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of the positive class when both are equally common."""
        return np.asarray(1 / (1 + np.exp(-2 * np.clip(self.margin(values), -30, 30))))


def fit_stumps(
    values: NDArray[np.float64], positive: NDArray[np.bool_], *, rounds: int = 200, bins: int = 48, shrink: float = 0.5
) -> Stumps:
    """Boost `rounds` stumps on rows of `values` (n, features); both classes weigh the same in all.

    Each round takes the split with the least weighted squared error, and its answer times `shrink`.
    """
    if not positive.any() or positive.all():
        raise RecordError.of(
            "training", expected="examples with and without polyp", found=f"{int(positive.sum())} of {len(positive)}"
        )
    cuts = [np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)[1:-1])) for column in values.T]
    binned = np.stack(
        [np.searchsorted(cut, column, side="right") for cut, column in zip(cuts, values.T, strict=True)]
    ).astype(np.uint8)
    sign = np.where(positive, 1.0, -1.0)
    weight = np.where(positive, 0.5 / positive.sum(), 0.5 / (~positive).sum())
    feature = np.zeros(rounds, np.int32)
    threshold, below, above = np.zeros(rounds), np.zeros(rounds), np.zeros(rounds)
    for r in range(rounds):
        f, cut, low, high = best_split(binned, sign, weight, bins)
        feature[r], below[r], above[r] = f, shrink * low, shrink * high
        threshold[r] = cuts[f][cut]
        answer = np.where(binned[f] <= cut, below[r], above[r])
        weight *= np.exp(-sign * answer)
        weight /= weight.sum()
    return Stumps(feature, threshold, below, above)


@njit(cache=True, nogil=True)
def best_split(binned, sign, weight, bins):  # type: ignore[no-untyped-def]
    """(feature, last bin below, mean below, mean above) with the least weighted squared error."""
    best, chosen, at, low, high = -1.0, 0, 0, 0.0, 0.0
    for f in range(binned.shape[0]):
        mass = np.zeros(bins + 1)
        moment = np.zeros(bins + 1)
        for i in range(binned.shape[1]):
            mass[binned[f, i]] += weight[i]
            moment[binned[f, i]] += weight[i] * sign[i]
        total, whole = mass.sum(), moment.sum()
        left = first = 0.0
        for b in range(bins):
            left += mass[b]
            first += moment[b]
            right = total - left
            if left < 1e-9 or right < 1e-9:
                continue
            gain = first * first / left + (whole - first) ** 2 / right  # what the split explains
            if gain > best + 1e-12:
                best, chosen, at = gain, f, b
                low, high = first / left, (whole - first) / right
    return chosen, at, low, high
