"""How sure the scores are, and whether two methods differ: resampling of whole cases, on the same clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.bootstrap import Interval, PairedTest, cluster_interval, holm, paired_test
from polypscope.evaluation.segmentation.clips import ClipScores, Result, columns_of, reduce_columns
from polypscope.evaluation.segmentation.spec import OURS, POOLED
from polypscope.records.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """A paired test between two methods; `p_holm` is adjusted for all comparisons made together."""

    a: str
    b: str
    measure: str
    test: PairedTest
    p_holm: float


def interval(
    clips: Sequence[ClipScores], result: Result, measure: str, replicates: int = 2000, seed: int = 0
) -> Interval:
    """Clustered bootstrap interval of a measure over the given clips of a result."""
    if measure == "flicker" or (measure in POOLED and result.spec.average == "clips"):
        return Interval(result.summary(lambda clip: clip in clips).values[measure], float("nan"), float("nan"))
    units, clusters = _units(clips, result, measure)
    after = result.spec.reduce_after_averaging
    return cluster_interval(
        units, clusters, lambda mean: _reduce(mean, measure, after), replicates=replicates, seed=seed
    )


def compare(results: dict[str, Result], measure: str, subset: str | None = None, seed: int = 0) -> list[Comparison]:
    """Every pair of methods on the clips of `subset` (all without one), with Holm's adjustment over the pairs."""
    if measure in OURS[2:]:
        raise InputError(f"compare: expected a measure of single frames, found {measure}; choose another.")
    chosen = {
        name: [clip for clip in result.clips if subset is None or clip.subset == subset]
        for name, result in results.items()
    }
    pairs = list(combinations(results, 2))
    tests = []
    for a, b in pairs:
        if [(c.subset, c.name, c.frames) for c in chosen[a]] != [(c.subset, c.name, c.frames) for c in chosen[b]]:
            raise InputError(f"compare: expected {a} and {b} to score the same clips, found different ones; see notes.")
        (x, clusters), (y, _) = (_units(chosen[m], results[m], measure) for m in (a, b))
        after = results[a].spec.reduce_after_averaging
        tests.append(paired_test(x, y, clusters, lambda mean, after=after: _reduce(mean, measure, after), seed=seed))  # type: ignore[misc]
    adjusted = holm([test.p for test in tests])
    return [Comparison(a, b, measure, t, p) for (a, b), t, p in zip(pairs, tests, adjusted, strict=True)]


def _units(clips: Sequence[ClipScores], result: Result, measure: str) -> tuple[Floats, list[str]]:
    """What the measure needs of each unit that is resampled, with its weight last, and the cluster of each."""
    columns = columns_of(measure, result.spec.reduce_after_averaging)
    vectors, clusters = [], []
    for clip in clips:
        for i, (total, frames) in enumerate(zip(clip.units, clip.unit_frames, strict=True)):
            weight = 1.0 if result.spec.average == "clips" and clip.is_video else float(frames)
            vectors.append(np.append(total[columns] / frames * weight, weight))
            # Stills of one folder are taken as independent images; frames of a video never are.
            clusters.append(f"{clip.subset}/{clip.case}" if clip.is_video else f"{clip.subset}/{clip.name}/{i}")
    return np.array(vectors), clusters


def _reduce(mean: Floats, measure: str, after: bool) -> Floats:
    return reduce_columns(mean[..., :-1] / mean[..., -1:], measure, after)
