"""All subsets of the given methods, all strategies: the "best result" rows of Bernal et al., Tables VI and VII.

In a frame only the methods with an output matter, so a subset's map there equals that of its active part. Each frame
therefore solves one map per set of active methods, matches its maximum at once, and every subset of the search looks
its counts up. No subset is ever fused by itself and no image is filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import nan

import numpy as np
from numba import njit
from numpy.typing import NDArray

from polypscope.evaluation.detection.counts import METRICS, Counts, metrics_of
from polypscope.evaluation.detection.groups import GROUPS, video_groups
from polypscope.evaluation.detection.matching import match
from polypscope.evaluation.detection.regions import FloatArray, IntArray, contains
from polypscope.evaluation.detection.tables import DetectionTable, TruthTable
from polypscope.evaluation.fusion import (
    _STACK,
    _TIES,
    STRATEGIES,
    Sigma,
    Strategy,
    TiePolicy,
    _gather,
    _maxima,
    _sigma_tables,
    settle_ties,
)
from polypscope.records.errors import UsageError, sentence

__all__ = ["Combination", "SearchResult", "search_combinations"]

MAX_METHODS = 12


@dataclass(frozen=True)
class Combination:
    """One subset under one strategy on one group of videos. `single` marks a method by itself."""

    strategy: Strategy
    methods: tuple[str, ...]
    group: str
    counts: Counts
    metrics: dict[str, float]


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Every combination, and what it was made with."""

    sigma: Sigma
    ties: TiePolicy
    one_vote_per_method: bool
    combinations: tuple[Combination, ...]

    def best(self, metric: str = "f1", *, group: str = "all") -> dict[Strategy, Combination]:
        """The best combination of at least two methods for each strategy; ties go to fewer methods."""
        out: dict[Strategy, Combination] = {}
        for strategy in STRATEGIES:
            ranked = self.ranked(strategy, metric, group=group)
            if ranked:
                out[strategy] = ranked[0]
        return out

    def ranked(self, strategy: Strategy, metric: str = "f1", *, group: str = "all") -> list[Combination]:
        """Combinations of at least two methods, best first; undefined values last."""
        chosen = [c for c in self.combinations if c.strategy == strategy and c.group == group and len(c.methods) > 1]
        return sorted(chosen, key=lambda c: (-np.nan_to_num(c.metrics[metric], nan=-1.0), len(c.methods), c.methods))


def search_combinations(
    truth: TruthTable,
    methods: Sequence[DetectionTable],
    *,
    sigma: Sigma,
    strategies: Sequence[Strategy] = STRATEGIES,
    ties: TiePolicy = "all",
    one_vote_per_method: bool = False,
    zero_division: float = nan,
    threads: int = 2,
) -> SearchResult:
    """Score every non-empty subset of `methods` under every strategy, for every group of videos.

    A subset is judged on the videos in which all of its methods took part. Points in masks decide, as in the paper.
    """
    k = len(methods)
    if not 1 <= k <= MAX_METHODS:
        raise UsageError(
            sentence(
                "search",
                expected=f"1 to {MAX_METHODS} methods ({2**MAX_METHODS - 1} subsets)",
                found=f"{k}",
                hint="leave the weakest out",
            )
        )
    table = _all_counts(truth, methods, sigma, ties, one_vote_per_method, strategies, threads)
    kind = video_groups(truth)
    took_part = np.stack([m.took_part for m in methods])
    groups = GROUPS if truth.kind == "videos" else GROUPS[:1]
    out = []
    for s, strategy in enumerate(strategies):
        for subset in range(1, 2**k):
            members = [i for i in range(k) if subset >> i & 1]
            present = took_part[members].all(axis=0)
            for group in groups:
                chosen = present & ((kind == group) | (group == "all"))
                if not chosen.any():
                    continue
                pooled = table[s, subset, chosen].sum(axis=0)
                ratios = metrics_of(pooled, zero_division=zero_division)
                out.append(
                    Combination(
                        strategy=strategy,
                        methods=tuple(methods[i].name for i in members),
                        group=group,
                        counts=Counts(*(int(v) for v in pooled)),
                        metrics={name: float(ratios[name]) for name in METRICS},
                    )
                )
    return SearchResult(sigma, ties, one_vote_per_method, tuple(out))


def _all_counts(
    truth: TruthTable,
    methods: Sequence[DetectionTable],
    sigma: Sigma,
    ties: TiePolicy,
    one_vote_per_method: bool,
    strategies: Sequence[Strategy],
    threads: int,
) -> IntArray:
    """(strategies, 2^k, V, 5) tp, fp, tn, fn, negatives of each subset (as a bit mask) in each video."""
    k, frames, videos = len(methods), truth.frame_count, len(truth.videos)
    active = np.zeros(frames, dtype=np.int64)
    for i, method in enumerate(methods):
        active |= (method.outputs > 0).astype(np.int64) << i
    negative = ~truth.has_polyp
    negatives = np.bincount(truth.video, weights=negative, minlength=videos)
    polyps = np.bincount(truth.video, weights=truth.polyp_count, minlength=videos)
    out = np.zeros((len(strategies), 2**k, videos, 5), dtype=np.int64)

    found = [match(truth, method) for method in methods]
    polyp_found = np.zeros(len(truth.polyp_id), dtype=np.int64)
    false_points = np.stack(
        [np.bincount(m.frame[~r.hit], minlength=frames) for m, r in zip(methods, found, strict=True)]
    )
    false_by_video = np.stack([np.bincount(truth.video, weights=row, minlength=videos) for row in false_points])
    for i, result in enumerate(found):
        polyp_found |= result.detected.astype(np.int64) << i
    polyp_video = truth.video[truth.polyp_frame]

    maps: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None
    if any(strategy != "union" for strategy in strategies):
        maps = _solve_maps(truth, methods, active, sigma, ties, one_vote_per_method, threads)

    def by_video(values: NDArray[np.generic], where: IntArray = truth.video) -> FloatArray:
        weights = np.asarray(values, dtype=np.float64)
        return np.bincount(where, weights=weights, minlength=videos).astype(np.float64)

    rows = np.arange(frames)
    for s, strategy in enumerate(strategies):
        for subset in range(1, 2**k):
            members = [i for i in range(k) if subset >> i & 1]
            if strategy == "union":
                tp = by_video((polyp_found & subset) != 0, polyp_video)
                fp = false_by_video[members].sum(axis=0)
                silent = (active & subset) == 0
            else:
                assert maps is not None
                here = active & subset
                if strategy == "voting":
                    votes = _popcount(here)
                    here = np.where(2 * votes >= len(members), here, 0)
                silent = here == 0
                tp, fp = by_video(maps[0][rows, here]), by_video(maps[1][rows, here])
            out[s, subset, :, 0] = tp
            out[s, subset, :, 1] = fp
            out[s, subset, :, 2] = by_video(negative & silent)
            out[s, subset, :, 3] = polyps - tp
            out[s, subset, :, 4] = negatives
    return out


def _popcount(values: IntArray) -> IntArray:
    return np.asarray(np.bitwise_count(values), dtype=np.int64)


def _solve_maps(
    truth: TruthTable,
    methods: Sequence[DetectionTable],
    active: IntArray,
    sigma: Sigma,
    ties: TiePolicy,
    one_vote_per_method: bool,
    threads: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """tp and fp (F, 2^k) of the map of every set of active methods in every frame; zero for the empty set."""
    points = _gather(truth, methods, one_vote_per_method)
    tables, table_of = _sigma_tables(truth, sigma)
    tp = np.zeros((truth.frame_count, 2 ** len(methods)), dtype=np.int32)
    fp = np.zeros_like(tp)
    regions = truth.regions

    def work(frames: IntArray) -> None:
        _search_kernel(
            frames, active, points.first, points.x, points.y, points.team, points.weight, points.score,
            tables, table_of, _TIES.index(ties), truth.first, regions.crop, regions.start, regions.bits, tp, fp,
        )  # fmt: skip

    busy = np.flatnonzero(active)
    # Frames are dealt out like cards: polyp frames, which cost most, are spread over all threads.
    with ThreadPoolExecutor(max_workers=max(threads, 1)) as pool:
        list(pool.map(work, [busy[i::8] for i in range(8)]))
    return tp, fp


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _search_kernel(
    frames: IntArray,
    active: IntArray,
    first: IntArray,
    xs: IntArray,
    ys: IntArray,
    team: IntArray,
    weight: FloatArray,
    score: FloatArray,
    tables: FloatArray,
    table_of: IntArray,
    ties: int,
    polyp_first: IntArray,
    crop: IntArray,
    start: IntArray,
    bits: NDArray[np.uint8],
    tp: NDArray[np.int32],
    fp: NDArray[np.int32],
) -> None:
    stack = np.empty((_STACK, 5))
    for f in frames:
        a, b = first[f], first[f + 1]
        table = tables[table_of[f]]
        out = np.empty((4 * (b - a) + 16, 2), np.int64)
        px, py = np.empty(b - a, np.int64), np.empty(b - a, np.int64)
        w, sc = np.empty(b - a), np.empty(b - a)
        polyps = polyp_first[f + 1] - polyp_first[f]
        subset = active[f]
        while subset > 0:  # every non-empty subset of the active methods
            n = 0
            for k in range(a, b):
                if (subset >> team[k]) & 1:
                    px[n], py[n], w[n], sc[n] = xs[k], ys[k], weight[k], score[k]
                    n += 1
            count, _ = _maxima(px[:n], py[:n], w[:n], table, out, stack)
            count = settle_ties(out, count, ties, px[:n], py[:n], sc[:n], table)
            hit = np.zeros(polyps, np.bool_)
            for k in range(count):
                inside = False
                for p in range(polyps):
                    if contains(crop, start, bits, polyp_first[f] + p, out[k, 0], out[k, 1]):
                        hit[p] = True
                        inside = True
                if not inside:
                    fp[f, subset] += 1
            tp[f, subset] = hit.sum()
            subset = (subset - 1) & active[f]
