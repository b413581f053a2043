"""Resampling that respects clusters: frames of one clip, and clips of one case, are not independent.

Intervals resample whole cases with replacement; paired tests exchange the two methods within whole cases.
Both are given as *weights per unit*, so that any statistic that is a function of weighted means (a mean curve and its
maximum, a pooled ratio) is recomputed by one matrix product for all replicates.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.records.errors import RecordError

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""From mean values per replicate, (B, ...), to the statistic per replicate, (B,)."""

EXACT_UP_TO_CLUSTERS = 14


@dataclass(frozen=True)
class Interval:
    """A percentile interval at `level` around the estimate from all units; NaN bounds when there is one cluster."""

    estimate: float
    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True)
class PairedTest:
    """Difference `a - b` of a statistic, its clustered bootstrap interval and the two-sided permutation p value."""

    difference: float
    low: float
    high: float
    p: float
    clusters: int
    exact: bool


def cluster_index(clusters: Sequence[Hashable]) -> NDArray[np.int64]:
    """Number the clusters of the units in order of first sight.

    >>> cluster_index(["case2", "case1", "case2"]).tolist()
    [0, 1, 0]
    """
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(c, len(numbers)) for c in clusters], dtype=np.int64)


def bootstrap_weights(clusters: Sequence[Hashable], replicates: int, seed: int = 0) -> Floats:
    """How often each unit is drawn in each replicate, (replicates, units), when whole clusters are drawn."""
    index = cluster_index(clusters)
    if not len(index):
        raise RecordError.of("clusters", expected="at least one unit", found="none")
    n = int(index.max()) + 1
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=replicates)
    return drawn[:, index].astype(np.float64)


def exchange_signs(clusters: Sequence[Hashable], replicates: int, seed: int = 0) -> tuple[Floats, bool]:
    """Signs ±1 per unit, constant within a cluster, (replicates, units); all of them when the clusters are few.

    >>> signs, exact = exchange_signs(["a", "a", "b"], replicates=1000)
    >>> exact, signs.tolist()
    (True, [[1.0, 1.0, 1.0], [-1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]])
    """
    index = cluster_index(clusters)
    n = int(index.max()) + 1
    exact = n <= EXACT_UP_TO_CLUSTERS
    if exact:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    else:
        bits = np.random.default_rng(seed).integers(0, 2, size=(replicates, n))
        bits[0] = 0  # the observed labelling is one of the permutations
    signs: Floats = (1.0 - 2.0 * bits.astype(np.float64))[:, index]
    return signs, exact


def mean_of_first_axis(means: Floats) -> Floats:
    """The statistic of plain values: the weighted mean itself."""
    return means.reshape(len(means))


def weighted_means(values: Floats, weights: Floats) -> Floats:
    """Means of `values` (units, ...) under each row of `weights` (B, units): (B, ...)."""
    flat = values.reshape(len(values), -1)
    means: Floats = weights @ flat / weights.sum(axis=1, keepdims=True)
    return means.reshape(len(weights), *values.shape[1:])


def cluster_interval(
    values: Floats,
    clusters: Sequence[Hashable],
    statistic: Statistic = mean_of_first_axis,
    *,
    replicates: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of a statistic of the mean of `values` (units, ...), drawing whole clusters.

    >>> cluster_interval(np.array([1.0, 1.0, 1.0]), ["a", "b", "c"])
    Interval(estimate=1.0, low=1.0, high=1.0, level=0.95)
    """
    estimate = float(statistic(weighted_means(values, np.ones((1, len(values)))))[0])
    if len(set(clusters)) < 2:
        return Interval(estimate, float("nan"), float("nan"), level)
    drawn = statistic(weighted_means(values, bootstrap_weights(clusters, replicates, seed)))
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(drawn, [tail, 100.0 - tail])
    return Interval(estimate, float(low), float(high), level)


def paired_test(
    a: Floats,
    b: Floats,
    clusters: Sequence[Hashable],
    statistic: Statistic = mean_of_first_axis,
    *,
    replicates: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> PairedTest:
    """Compare two methods on the same units, `a` and `b` of shape (units, ...).

    Under the null hypothesis the names of the methods may be exchanged within any cluster; the p value is the share
    of exchanges whose absolute difference is at least the observed one (all exchanges when there are at most
    `EXACT_UP_TO_CLUSTERS` clusters, else `replicates` random ones with the observed one among them).

    >>> paired_test(np.array([0.9, 0.8, 0.7]), np.array([0.8, 0.7, 0.6]), ["x", "y", "z"]).p
    0.25
    """
    if a.shape != b.shape:
        raise RecordError.of("b", expected=f"the shape of a, {a.shape}", found=str(b.shape))
    ones = np.ones((1, len(a)))
    observed = float((statistic(weighted_means(a, ones)) - statistic(weighted_means(b, ones)))[0])
    signs, exact = exchange_signs(clusters, replicates, seed)
    middle, half = (a + b) / 2.0, (a - b) / 2.0
    mean_middle = middle.mean(axis=0, keepdims=True)
    swapped_half = (signs @ half.reshape(len(half), -1) / len(half)).reshape(len(signs), *half.shape[1:])
    differences = statistic(mean_middle + swapped_half) - statistic(mean_middle - swapped_half)
    p = float(np.mean(np.abs(differences) >= abs(observed) - 1e-12))
    low = high = float("nan")
    if len(set(clusters)) > 1:
        weights = bootstrap_weights(clusters, min(replicates, 2000), seed)
        drawn = statistic(weighted_means(a, weights)) - statistic(weighted_means(b, weights))
        tail = 50.0 * (1.0 - level)
        low, high = (float(v) for v in np.percentile(drawn, [tail, 100.0 - tail]))
    return PairedTest(observed, low, high, p, len(set(clusters)), exact)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of several p values, in the given order.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    adjusted = np.empty(len(p_values))
    running = 0.0
    for rank, i in enumerate(order):
        running = max(running, (len(p_values) - rank) * p_values[i])
        adjusted[i] = min(1.0, running)
    return [float(p) for p in adjusted]
