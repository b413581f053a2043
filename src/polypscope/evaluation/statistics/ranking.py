"""Three ways to rank methods, and how stable each ranking is when the videos change.

aggregate-then-rank: rank by the mean over cases. rank-then-aggregate: rank inside every case, then by mean rank.
test-then-rank: by the number of other methods that a method beats significantly (one-sided Wilcoxon, Holm). Which one
is used can change who wins (Maier-Hein et al., Nature Communications 2018; Wiesenfarth et al., Scientific Reports
2021), so all three are given, each with a bootstrap that draws whole clusters of cases.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from polypscope.evaluation.bootstrap import bootstrap_weights, cluster_index

__all__ = ["SCHEMES", "Ranking", "Scheme", "rank_methods", "ranking_stability", "wilcoxon_wins"]

FloatArray = NDArray[np.float64]
Scheme = Literal["aggregate-then-rank", "rank-then-aggregate", "test-then-rank"]
SCHEMES: tuple[Scheme, ...] = ("aggregate-then-rank", "rank-then-aggregate", "test-then-rank")


@dataclass(frozen=True, eq=False)
class Ranking:
    """Ranks of M methods by one scheme: `rank` (M,), 1 = best, ties share the mean rank; `low`, `high` (M,) 95 % of the
    bootstrap ranks; `frequency` (M, M) how often method i took place j + 1; `kendall_tau` mean agreement with `rank`.
    """

    scheme: Scheme
    methods: tuple[str, ...]
    rank: FloatArray
    low: FloatArray
    high: FloatArray
    frequency: FloatArray
    kendall_tau: float


def rank_methods(
    scores: FloatArray, scheme: Scheme, *, higher_is_better: bool = True, alpha: float = 0.05
) -> FloatArray:
    """Ranks (M,) of the columns of `scores` (cases, M); 1 is best. No NaN."""
    ranks: FloatArray = _rank_stack(scores[None], scheme, higher_is_better, alpha)[0]
    return ranks


def wilcoxon_wins(scores: FloatArray, *, higher_is_better: bool = True) -> FloatArray:
    """(M, M) Holm-adjusted one-sided p values that method i is better than method j; NaN on the diagonal.

    Exact for few cases without ties, as scipy decides.
    """
    from polypscope.evaluation.bootstrap import holm

    methods = scores.shape[1]
    sign = 1.0 if higher_is_better else -1.0
    p = np.full((methods, methods), np.nan)
    for i in range(methods):
        for j in range(methods):
            if i != j:
                difference = sign * (scores[:, i] - scores[:, j])
                p[i, j] = float(stats.wilcoxon(difference, alternative="greater").pvalue) if difference.any() else 1.0
    off = ~np.eye(methods, dtype=np.bool_)
    p[off] = holm(list(p[off]))
    return p


def ranking_stability(
    scores: FloatArray,
    methods: Sequence[str],
    clusters: Sequence[Hashable],
    *,
    higher_is_better: bool = True,
    alpha: float = 0.05,
    replicates: int = 1000,
    seed: int = 0,
) -> list[Ranking]:
    """One ranking per scheme with its spread over bootstrap draws of whole clusters of the rows of `scores`."""
    full = np.asarray(scores, dtype=np.float64)
    weights = bootstrap_weights(clusters, replicates, seed)
    out = []
    for scheme in SCHEMES:
        rank = rank_methods(full, scheme, higher_is_better=higher_is_better, alpha=alpha)
        if len(set(clusters)) < 2:
            drawn = rank[None]
        elif scheme == "aggregate-then-rank":
            means = weights @ full / weights.sum(axis=1, keepdims=True)
            drawn = _ranks(means, higher_is_better)
        elif scheme == "rank-then-aggregate":
            inside = _ranks(full, higher_is_better)
            drawn = _ranks(weights @ inside / weights.sum(axis=1, keepdims=True), higher_is_better=False)
        else:
            drawn = _drawn_test_ranks(full, clusters, weights, higher_is_better, alpha)
        places = np.round(drawn).astype(np.int64)
        frequency = np.stack([(places == place + 1).mean(axis=0) for place in range(len(methods))], axis=1)
        low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
        out.append(
            Ranking(
                scheme=scheme,
                methods=tuple(methods),
                rank=rank,
                low=low,
                high=high,
                frequency=frequency,
                kendall_tau=_mean_kendall_tau(rank, drawn),
            )
        )
    return out


def _mean_kendall_tau(rank: FloatArray, drawn: FloatArray) -> float:
    """Mean of Kendall's τ-b between `rank` (M,) and each row of `drawn` (B, M); NaN when every one is undefined."""
    i, j = np.triu_indices(len(rank), k=1)
    here, there = np.sign(rank[i] - rank[j]), np.sign(drawn[:, i] - drawn[:, j])
    scale = np.sqrt((here != 0).sum() * (there != 0).sum(axis=1).astype(np.float64))
    defined = scale > 0
    return float(((there @ here)[defined] / scale[defined]).mean()) if defined.any() else float("nan")


def _ranks(values: FloatArray, higher_is_better: bool) -> FloatArray:
    """Ranks along the last axis, ties share the mean rank. Rounded first, so that ties do not hang on the last bit."""
    values = np.round(values, 12)
    return np.asarray(stats.rankdata(-values if higher_is_better else values, axis=-1), dtype=np.float64)


def _rank_stack(stack: FloatArray, scheme: Scheme, higher_is_better: bool, alpha: float) -> FloatArray:
    """Ranks (B, M) of a stack (B, cases, M)."""
    if scheme == "aggregate-then-rank":
        return _ranks(stack.mean(axis=1), higher_is_better)
    if scheme == "rank-then-aggregate":
        return _ranks(_ranks(stack, higher_is_better).mean(axis=1), higher_is_better=False)
    if len(stack) == 1:
        wins = (np.nan_to_num(wilcoxon_wins(stack[0], higher_is_better=higher_is_better), nan=1.0) < alpha).sum(axis=1)
        return _ranks(wins[None].astype(np.float64), higher_is_better=True)
    return _ranks(_significant_wins(stack, higher_is_better, alpha), higher_is_better=True)


def _drawn_test_ranks(
    scores: FloatArray, clusters: Sequence[Hashable], weights: FloatArray, higher_is_better: bool, alpha: float
) -> FloatArray:
    """Test-then-rank in every draw. Draws may differ in length when clusters do; equal lengths are done together."""
    index = cluster_index(clusters)
    out = np.empty((len(weights), scores.shape[1]))
    lengths = weights.sum(axis=1).astype(np.int64)
    rows = [np.repeat(np.arange(len(index)), draw.astype(np.int64)) for draw in weights]
    for length in np.unique(lengths):
        chosen = np.flatnonzero(lengths == length)
        for part in np.array_split(chosen, max(1, len(chosen) * int(length) // 200_000)):
            stack = np.stack([scores[rows[b]] for b in part])
            out[part] = _ranks(_significant_wins(stack, higher_is_better, alpha), higher_is_better=True)
    return out


def _significant_wins(stack: FloatArray, higher_is_better: bool, alpha: float) -> FloatArray:
    """(B, M) significant wins by the normal form of the signed-rank test, which holds with the ties of a bootstrap."""
    draws, _, methods = stack.shape
    sign = 1.0 if higher_is_better else -1.0
    p = np.ones((draws, methods, methods))
    for i in range(methods):
        for j in range(i + 1, methods):
            z = _signed_rank_z(sign * (stack[:, :, i] - stack[:, :, j]))
            p[:, i, j], p[:, j, i] = stats.norm.sf(z), stats.norm.sf(-z)
    off = ~np.eye(methods, dtype=np.bool_)
    flat = p[:, off]
    order = np.argsort(flat, axis=1)
    steps = flat.shape[1] - np.arange(flat.shape[1])
    sorted_p = np.take_along_axis(flat, order, axis=1) * steps
    adjusted = np.minimum(np.maximum.accumulate(sorted_p, axis=1), 1.0)
    restored = np.empty_like(flat)
    np.put_along_axis(restored, order, adjusted, axis=1)
    full = np.ones_like(p)
    full[:, off] = restored
    return np.asarray((full < alpha).sum(axis=2), dtype=np.float64)


def _signed_rank_z(difference: FloatArray) -> FloatArray:
    """(B,) standardised Wilcoxon statistic of rows (B, n), zeros dropped, ties corrected; 0 where nothing differs."""
    size = np.round(np.abs(difference), 12)
    used = size > 0
    # Zeros get the lowest ranks; taking their number off again leaves the ranks among the used ones.
    ranks = stats.rankdata(size, axis=1)
    zeros = (~used).sum(axis=1, keepdims=True)
    ranks = np.where(used, ranks - zeros, 0.0)
    plus = np.where(difference > 0, ranks, 0.0).sum(axis=1)
    n = used.sum(axis=1).astype(np.float64)
    mean = n * (n + 1) / 4.0
    # The variance with ties is the sum of squared ranks over four: no tie table is needed.
    variance = (ranks**2).sum(axis=1) / 4.0
    return np.asarray(np.divide(plus - mean, np.sqrt(variance), out=np.zeros(len(plus)), where=variance > 0))
