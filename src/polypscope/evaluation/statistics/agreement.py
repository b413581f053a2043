"""Agreement of several raters beyond chance: Fleiss' κ and Krippendorff's α for nominal labels."""

from __future__ import annotations

from math import nan

import numpy as np
from numpy.typing import NDArray

__all__ = ["fleiss_kappa", "krippendorff_alpha"]


def fleiss_kappa(counts: NDArray[np.integer]) -> float:
    """Fleiss' κ. `counts` (units, categories): how many raters chose each category; each unit rated equally often.

    NaN when every rating falls into one category: agreement by chance is then certain and κ undefined.

    >>> round(fleiss_kappa(np.array([[3, 0], [0, 3], [2, 1]])), 4)
    0.55
    """
    table = np.asarray(counts, dtype=np.float64)
    raters = table.sum(axis=1)
    if len(table) == 0 or raters[0] < 2 or not (raters == raters[0]).all():
        return nan
    n = raters[0]
    share = table.sum(axis=0) / table.sum()
    observed = float((((table**2).sum(axis=1) - n) / (n * (n - 1))).mean())
    chance = float((share**2).sum())
    return (observed - chance) / (1.0 - chance) if chance < 1.0 else nan


def krippendorff_alpha(ratings: NDArray[np.floating]) -> float:
    """Krippendorff's α for nominal labels. `ratings` (raters, units), NaN where a rater did not judge a unit.

    Units with fewer than two ratings carry no information and drop out. NaN when all ratings are alike.
    """
    values = np.asarray(ratings, dtype=np.float64)
    categories = np.unique(values[np.isfinite(values)])
    if categories.size == 0:
        return nan
    counts = np.stack([(values == c).sum(axis=0) for c in categories], axis=1).astype(np.float64)
    counts = counts[counts.sum(axis=1) >= 2]
    if len(counts) == 0:
        return nan
    per_unit = counts.sum(axis=1, keepdims=True)
    pairs = (counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(counts.shape[1])) / (
        per_unit[:, :, None] - 1.0
    )
    coincidence = pairs.sum(axis=0)
    total = coincidence.sum()
    margin = coincidence.sum(axis=1)
    observed = total - np.trace(coincidence)
    expected = (total**2 - (margin**2).sum()) / (total - 1.0)
    return float(1.0 - observed / expected) if expected > 0 else nan
