"""The tests of the MICCAI 2015 study: Shapiro–Wilk decides between ANOVA, Tukey–Kramer and Kruskal–Wallis, Dunn.

Bernal et al. (IEEE TMI 36(6), 2017, section III-C) treat methods as independent groups although all of them saw the
same videos. Friedman's test, which respects that pairing, therefore always stands beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import nan, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from polypscope.evaluation.bootstrap import holm
from polypscope.records.errors import UsageError

__all__ = [
    "Normality",
    "Omnibus",
    "PairwiseTest",
    "anova_tukey_kramer",
    "comparison_half_widths",
    "friedman",
    "kruskal_dunn",
    "shapiro_wilk",
]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Normality:
    """Shapiro–Wilk: `statistic` and `p` of each group and of the residuals; NaN where it cannot be computed."""

    groups: dict[str, tuple[float, float]]
    residuals: tuple[float, float]

    def is_normal(self, alpha: float = 0.05) -> bool:
        """No test rejects normality. With few videos the test has little power, so this is absence of proof."""
        p_values = [p for _, p in (*self.groups.values(), self.residuals) if np.isfinite(p)]
        return bool(p_values) and min(p_values) > alpha


@dataclass(frozen=True)
class PairwiseTest:
    """Two methods: difference of means (or of mean ranks), its interval where the test gives one, adjusted p."""

    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Omnibus:
    """A test over all methods with its pairwise follow-up. `half_width` is each method's comparison interval:
    two methods differ significantly when their intervals do not overlap (empty for rank tests of the mean).
    """

    test: str
    statistic: float
    p: float
    centre: dict[str, float]
    half_width: dict[str, float]
    pairs: tuple[PairwiseTest, ...]


def shapiro_wilk(groups: dict[str, FloatArray]) -> Normality:
    """Shapiro–Wilk on each group of at least three different values and on the pooled residuals."""
    clean = {name: _finite(values) for name, values in groups.items()}
    residuals = np.concatenate([v - v.mean() for v in clean.values() if v.size]) if clean else np.zeros(0)
    return Normality({name: _shapiro(values) for name, values in clean.items()}, _shapiro(residuals))


def _shapiro(values: FloatArray) -> tuple[float, float]:
    if values.size < 3 or float(np.ptp(values)) == 0.0:
        return nan, nan
    # scipy's p value is not accurate beyond 5000 values and says so; a fixed draw of 5000 keeps the test usable.
    if values.size > 5000:
        values = np.random.default_rng(0).choice(values, 5000, replace=False)
    result = stats.shapiro(values)
    return float(result.statistic), float(result.pvalue)


def anova_tukey_kramer(groups: dict[str, FloatArray], *, alpha: float = 0.05) -> Omnibus:
    """One-way ANOVA and Tukey–Kramer intervals of all pairs, also for groups of different sizes."""
    clean = _usable(groups)
    names, samples = list(clean), list(clean.values())
    n = np.array([s.size for s in samples], dtype=np.float64)
    means = np.array([s.mean() for s in samples])
    freedom = int(n.sum()) - len(samples)
    if freedom < 1:
        raise UsageError("ANOVA needs at least two values in some method; give results of more videos.")
    variance = float(sum(((s - s.mean()) ** 2).sum() for s in samples)) / freedom
    centre = dict(zip(names, map(float, means), strict=True))
    if variance == 0.0:  # no spread inside any method: the statistic is not defined
        same = bool(np.ptp(means) == 0)
        pairs = tuple(
            PairwiseTest(a, b, centre[a] - centre[b], nan, nan, 1.0 if same else nan) for a, b in combinations(names, 2)
        )
        return Omnibus("one-way ANOVA", nan, 1.0 if same else nan, centre, dict.fromkeys(names, nan), pairs)
    result = stats.f_oneway(*samples)
    critical = float(stats.studentized_range.ppf(1.0 - alpha, len(samples), freedom))
    pairs_out = []
    for i, j in combinations(range(len(samples)), 2):
        error = sqrt(variance * (1.0 / n[i] + 1.0 / n[j]) / 2.0)
        difference = float(means[i] - means[j])
        p = float(stats.studentized_range.sf(abs(difference) / error, len(samples), freedom))
        margin = critical * error
        pairs_out.append(PairwiseTest(names[i], names[j], difference, difference - margin, difference + margin, p))
    widths = comparison_half_widths(n, variance, critical)
    return Omnibus(
        test="one-way ANOVA with Tukey–Kramer",
        statistic=float(result.statistic),
        p=float(result.pvalue),
        centre=centre,
        half_width=dict(zip(names, map(float, widths), strict=True)),
        pairs=tuple(pairs_out),
    )


def comparison_half_widths(n: FloatArray, variance: float, critical: float) -> FloatArray:
    """Hochberg and Tamhane's uncertainty intervals around the means: the bars of the paper's Figures 8 and 11.

    They are chosen such that two bars overlap just when the pair is not significantly different (exactly so for equal
    group sizes). `n` (k,) sizes, pooled `variance`, `critical` value of the studentised range.
    """
    k = len(n)
    d = np.sqrt(variance * (1.0 / n[:, None] + 1.0 / n[None, :]))
    np.fill_diagonal(d, 0.0)
    if k == 2:
        w = np.full(2, d[0, 1] / 2.0)
    else:
        w = ((k - 1) * d.sum(axis=1) - d.sum() / 2.0) / ((k - 1) * (k - 2))
    return np.asarray(critical / sqrt(2.0) * w)


def kruskal_dunn(groups: dict[str, FloatArray], *, alpha: float = 0.05) -> Omnibus:
    """Kruskal–Wallis and Dunn's test of all pairs with Holm's adjustment, both corrected for ties.

    Centres are mean ranks; the half widths are comparison intervals of the ranks at `alpha` after Bonferroni.
    """
    clean = _usable(groups)
    names, samples = list(clean), list(clean.values())
    pooled = np.concatenate(samples)
    total = pooled.size
    n = np.array([s.size for s in samples], dtype=np.float64)
    ranks = np.split(stats.rankdata(pooled), np.cumsum(n)[:-1].astype(int))
    mean_ranks = np.array([r.mean() for r in ranks])
    _, ties = np.unique(pooled, return_counts=True)
    correction = float((ties**3 - ties).sum()) / (12.0 * (total - 1))
    variance = total * (total + 1) / 12.0 - correction
    centre = dict(zip(names, map(float, mean_ranks), strict=True))
    index_pairs = list(combinations(range(len(samples)), 2))
    if variance <= 0:  # every value is the same
        pairs = tuple(PairwiseTest(names[i], names[j], 0.0, nan, nan, 1.0) for i, j in index_pairs)
        return Omnibus("Kruskal–Wallis", 0.0, 1.0, centre, dict.fromkeys(names, nan), pairs)
    result = stats.kruskal(*samples)
    z = [float((mean_ranks[i] - mean_ranks[j]) / sqrt(variance * (1.0 / n[i] + 1.0 / n[j]))) for i, j in index_pairs]
    adjusted = holm([2.0 * float(stats.norm.sf(abs(value))) for value in z])
    critical = float(stats.norm.ppf(1.0 - alpha / (2 * len(index_pairs)))) * sqrt(2.0)
    widths = comparison_half_widths(n, variance, critical)
    return Omnibus(
        test="Kruskal–Wallis with Dunn (Holm)",
        statistic=float(result.statistic),
        p=float(result.pvalue),
        centre=centre,
        half_width=dict(zip(names, map(float, widths), strict=True)),
        pairs=tuple(
            PairwiseTest(names[i], names[j], float(mean_ranks[i] - mean_ranks[j]), nan, nan, p)
            for (i, j), p in zip(index_pairs, adjusted, strict=True)
        ),
    )


def friedman(scores: FloatArray) -> tuple[str, float, float]:
    """Friedman's test over `scores` (cases, methods) without NaN; Wilcoxon's signed-rank test for two methods.

    Returns the name of the test used, its statistic and p; NaN where there is nothing to test.
    """
    cases, methods = scores.shape
    if methods < 2 or cases < 2:
        return "Friedman", nan, nan
    if methods == 2:
        difference = scores[:, 0] - scores[:, 1]
        if not difference.any():
            return "Wilcoxon signed rank", 0.0, 1.0
        result = stats.wilcoxon(difference)
        return "Wilcoxon signed rank", float(result.statistic), float(result.pvalue)
    if bool((np.ptp(scores, axis=1) == 0).all()):
        return "Friedman", 0.0, 1.0
    result = stats.friedmanchisquare(*scores.T)
    return "Friedman", float(result.statistic), float(result.pvalue)


def _finite(values: FloatArray) -> FloatArray:
    values = np.asarray(values, dtype=np.float64)
    return values[np.isfinite(values)]


def _usable(groups: dict[str, FloatArray]) -> dict[str, FloatArray]:
    clean = {name: _finite(values) for name, values in groups.items()}
    empty = [name for name, values in clean.items() if values.size == 0]
    if empty or len(clean) < 2:
        raise UsageError(
            "a comparison needs at least two methods with values; "
            + (f"{', '.join(empty)} has none." if empty else f"found {len(clean)}.")
        )
    return clean
