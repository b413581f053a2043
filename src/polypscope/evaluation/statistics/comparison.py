"""One comparison of methods on the same cases: every test, every ranking, and what they mean in plain words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.bootstrap import Interval, PairedTest, cluster_interval, holm, paired_test
from polypscope.evaluation.statistics.omnibus import (
    FloatArray,
    Normality,
    Omnibus,
    anova_tukey_kramer,
    friedman,
    kruskal_dunn,
    shapiro_wilk,
)
from polypscope.evaluation.statistics.ranking import Ranking, ranking_stability, wilcoxon_wins
from polypscope.records.errors import UsageError, sentence

__all__ = ["Comparison", "Missing", "compare"]

Missing = Literal["drop-cases", "drop-methods"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """M methods on n cases. `significance` (M, M): Holm-adjusted p that the row's method is better than the column's.

    `paired` holds permutation tests of the mean difference that exchange whole clusters; `paired_p` their Holm-adjusted
    p values in the same order.
    """

    metric: str
    higher_is_better: bool
    alpha: float
    methods: tuple[str, ...]
    cases: tuple[str, ...]
    scores: FloatArray
    clusters: int
    dropped_cases: tuple[str, ...]
    dropped_methods: tuple[str, ...]
    means: dict[str, Interval]
    normality: Normality
    omnibus: Omnibus
    friedman: tuple[str, float, float]
    rankings: tuple[Ranking, ...]
    significance: FloatArray
    paired: dict[tuple[str, str], PairedTest]
    paired_p: dict[tuple[str, str], float]

    @property
    def best(self) -> str:
        """The method with the best mean."""
        order = self.scores.mean(axis=0) * (1 if self.higher_is_better else -1)
        return self.methods[int(np.argmax(order))]

    def summary(self) -> list[str]:
        """What the data show and what they do not, one sentence each."""
        return _in_words(self)


def compare(
    scores: FloatArray,
    methods: Sequence[str],
    cases: Sequence[str],
    *,
    metric: str = "score",
    clusters: Sequence[Hashable] | None = None,
    higher_is_better: bool = True,
    alpha: float = 0.05,
    missing: Missing = "drop-cases",
    replicates: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare the columns of `scores` (cases, methods).

    Cases (or methods) with NaN are left out, as `missing` says, and named in the result: methods must be compared on
    the same cases. `clusters` (cases,) names what is resampled as a whole, such as the patient; each case by default.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.shape != (len(cases), len(methods)):
        raise UsageError(
            sentence("scores", expected=f"{len(cases)} cases × {len(methods)} methods", found=f"shape {table.shape}")
        )
    names = list(clusters) if clusters is not None else list(cases)
    holes = ~np.isfinite(table)
    keep_methods: NDArray[np.bool_] = (
        np.asarray(~holes.any(axis=0)) if missing == "drop-methods" else np.ones(len(methods), dtype=np.bool_)
    )
    keep_cases: NDArray[np.bool_] = np.asarray(~holes[:, keep_methods].any(axis=1))
    kept = table[np.ix_(keep_cases, keep_methods)]
    kept_methods = [m for m, keep in zip(methods, keep_methods, strict=True) if keep]
    kept_cases = [c for c, keep in zip(cases, keep_cases, strict=True) if keep]
    kept_clusters = [c for c, keep in zip(names, keep_cases, strict=True) if keep]
    if kept.shape[0] < 2 or kept.shape[1] < 2:
        raise UsageError(
            f"comparing {metric} needs at least two methods with values on the same two cases, found "
            f"{kept.shape[1]} methods and {kept.shape[0]} such cases; give more videos or choose another metric."
        )
    groups = {name: kept[:, i] for i, name in enumerate(kept_methods)}
    normality = shapiro_wilk(groups)
    test = anova_tukey_kramer if normality.is_normal(alpha) else kruskal_dunn
    pairs = list(combinations(range(len(kept_methods)), 2))
    tests = {
        (kept_methods[i], kept_methods[j]): paired_test(kept[:, i], kept[:, j], kept_clusters, seed=seed)
        for i, j in pairs
    }
    return Comparison(
        metric=metric,
        higher_is_better=higher_is_better,
        alpha=alpha,
        methods=tuple(kept_methods),
        cases=tuple(kept_cases),
        scores=kept,
        clusters=len(set(kept_clusters)),
        dropped_cases=tuple(c for c, keep in zip(cases, keep_cases, strict=True) if not keep),
        dropped_methods=tuple(m for m, keep in zip(methods, keep_methods, strict=True) if not keep),
        means={
            name: cluster_interval(values, kept_clusters, replicates=replicates, seed=seed)
            for name, values in groups.items()
        },
        normality=normality,
        omnibus=test(groups, alpha=alpha),
        friedman=friedman(kept),
        rankings=tuple(
            ranking_stability(
                kept,
                kept_methods,
                kept_clusters,
                higher_is_better=higher_is_better,
                alpha=alpha,
                replicates=replicates,
                seed=seed,
            )
        ),
        significance=wilcoxon_wins(kept, higher_is_better=higher_is_better),
        paired=tests,
        paired_p=dict(zip(tests, holm([t.p for t in tests.values()]), strict=True)),
    )


def _in_words(c: Comparison) -> list[str]:
    out = [
        f"{c.metric} of {len(c.methods)} methods on {len(c.cases)} cases in {c.clusters} clusters; "
        f"{'higher' if c.higher_is_better else 'lower'} is better, α = {c.alpha:g}."
    ]
    if c.dropped_methods:
        out.append(f"Left out because a value is missing: {', '.join(c.dropped_methods)}.")
    if c.dropped_cases:
        out.append(f"{len(c.dropped_cases)} cases without a value for every method are left out.")
    p = c.normality.residuals[1]
    if c.normality.is_normal(c.alpha):
        out.append(
            f"Shapiro–Wilk finds no departure from a normal distribution (residuals p = {_p(p)}), so means are compared"
            + ("; with so few cases it would hardly notice one." if len(c.cases) < 15 else ".")
        )
    else:
        out.append("Shapiro–Wilk rejects a normal distribution (or cannot be computed), so ranks are compared.")
    omnibus = c.omnibus.p < c.alpha
    out.append(
        f"{c.omnibus.test}: p = {_p(c.omnibus.p)}; "
        + ("the methods do not all perform alike." if omnibus else "no difference between methods is shown.")
    )
    name, _, paired_p = c.friedman
    agree = (paired_p < c.alpha) == omnibus
    out.append(
        f"{name}, which respects that all methods saw the same cases: p = {_p(paired_p)}"
        + (
            "."
            if agree or not np.isfinite(paired_p)
            else "; it disagrees with the unpaired test and is the better guide."
        )
    )
    if c.clusters < len(c.cases):
        out.append(
            "Both treat cases as independent although several share a cluster, so they see differences too easily; the "
            "permutation test by cluster and the bootstrap do not."
        )
    best = c.best
    mean = c.means[best]
    others = [m for m in c.methods if m != best]
    p_values = {
        (b if a == best else a): pair.p
        for pair in c.omnibus.pairs
        for a, b in [(pair.first, pair.second)]
        if best in (a, b)
    }
    worse = [m for m in others if p_values[m] < c.alpha]
    open_ = [m for m in others if not p_values[m] < c.alpha]
    out.append(
        f"Best mean: {best}, {mean.estimate:#.3g} (95 % of bootstrap draws: {mean.low:#.3g} to {mean.high:#.3g})."
    )
    if worse:
        out.append(f"{best} differs significantly from {_and(worse)}.")
    if open_:
        out.append(f"Not shown to differ from {best}: {_and(open_)}. This is not proof that they are equal.")
    margins = [(pair.high - pair.low) / 2 for pair in c.omnibus.pairs if np.isfinite(pair.low)]
    if margins:
        out.append(f"Differences in {c.metric} below about {max(margins):.2g} cannot be seen with these data.")
    firsts = [tuple(np.array(r.methods)[r.rank == r.rank.min()]) for r in c.rankings]
    separated = [first for first in firsts if len(first) < len(c.methods)]
    if len(separated) < len(firsts) and all(first == firsts[0] for first in separated):
        out.append(
            f"The rankings that separate methods at all put {_and(list(firsts[0]))} first; test-then-rank does not: "
            f"with {len(c.cases)} cases no paired test survives the adjustment for all pairs."
        )
    elif all(first == firsts[0] for first in firsts):
        out.append(f"All three ranking schemes put {_and(list(firsts[0]))} first.")
    else:
        named = "; ".join(f"{r.scheme}: {_and(list(first))}" for r, first in zip(c.rankings, firsts, strict=True))
        out.append(f"The first place depends on the ranking scheme ({named}).")
    mean_rank = c.rankings[0]
    share = float(mean_rank.frequency[c.methods.index(best), 0])
    out.append(f"{best} has the best mean in {100 * share:.0f} % of bootstrap draws of the clusters.")
    if c.clusters < 10:
        out.append(
            f"{c.clusters} clusters are few: bootstrap intervals come out too narrow, and single cases can decide."
        )
    return out


def _p(p: float) -> str:
    if not np.isfinite(p):
        return "n/a"
    if p < 1e-15:
        return "below 1e-15"
    return f"{p:.1e}" if p < 0.001 else f"{p:.3f}"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
