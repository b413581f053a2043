"""Tests against scipy, statsmodels and scikit-posthocs on textbook data, and against published values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

from polypscope.evaluation.statistics import (
    anova_tukey_kramer,
    comparison_half_widths,
    fleiss_kappa,
    friedman,
    krippendorff_alpha,
    kruskal_dunn,
    shapiro_wilk,
)
from polypscope.records.errors import UsageError

# R's PlantGrowth: dried weight of plants under a control and two treatments.
PLANTS = {
    "ctrl": np.array([4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14]),
    "trt1": np.array([4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69]),
    "trt2": np.array([6.31, 5.12, 5.54, 5.50, 5.37, 5.29, 4.92, 6.15, 5.80, 5.26]),
}
# Hollander and Wolfe (1973), table 7.1: rounding first base, three ways, 22 players.
BASE = np.array(
    [
        [5.40, 5.50, 5.55], [5.85, 5.70, 5.75], [5.20, 5.60, 5.50], [5.55, 5.50, 5.40], [5.90, 5.85, 5.70],
        [5.45, 5.55, 5.60], [5.40, 5.40, 5.35], [5.45, 5.50, 5.35], [5.25, 5.15, 5.00], [5.85, 5.80, 5.70],
        [5.25, 5.20, 5.10], [5.65, 5.55, 5.45], [5.60, 5.35, 5.45], [5.05, 5.00, 4.95], [5.50, 5.50, 5.40],
        [5.45, 5.55, 5.50], [5.55, 5.55, 5.35], [5.45, 5.50, 5.55], [5.50, 5.45, 5.25], [5.65, 5.60, 5.40],
        [5.70, 5.65, 5.55], [6.30, 6.30, 6.25],
    ]
)  # fmt: skip


def test_anova_gives_r_s_published_values():
    result = anova_tukey_kramer(PLANTS)
    assert result.statistic == pytest.approx(4.846, abs=5e-4)  # R: summary(aov(weight ~ group, PlantGrowth))
    assert result.p == pytest.approx(0.01591, abs=5e-6)
    # R: TukeyHSD: trt1-ctrl -0.371 (0.391), trt2-ctrl 0.494 (0.198), trt2-trt1 0.865 (0.012)
    p = {(pair.first, pair.second): round(pair.p, 3) for pair in result.pairs}
    assert p == {("ctrl", "trt1"): 0.391, ("ctrl", "trt2"): 0.198, ("trt1", "trt2"): 0.012}


def unequal() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {f"m{i}": rng.normal(0.5 + 0.1 * i, 0.1, n) for i, n in enumerate((5, 9, 7, 12))}


@pytest.mark.parametrize("groups", [PLANTS, unequal()], ids=["equal", "unequal"])
def test_tukey_kramer_agrees_with_scipy_and_statsmodels(groups):
    result = anova_tukey_kramer(groups)
    names = list(groups)
    oracle = stats.tukey_hsd(*groups.values())
    interval = oracle.confidence_interval(0.95)
    for pair in result.pairs:
        i, j = names.index(pair.first), names.index(pair.second)
        assert pair.p == pytest.approx(oracle.pvalue[i, j], abs=1e-9)
        assert (pair.low, pair.high) == pytest.approx((interval.low[i, j], interval.high[i, j]), abs=1e-9)

    multi = pytest.importorskip("statsmodels.stats.multicomp", reason="statsmodels is an oracle only")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = multi.pairwise_tukeyhsd(
            np.concatenate(list(groups.values())), np.repeat(names, [len(v) for v in groups.values()])
        )
        fitted._simultaneous_ci()
    assert [result.half_width[str(n)] for n in fitted.groupsunique] == pytest.approx(list(fitted.halfwidths), rel=1e-6)


def test_bars_overlap_just_when_the_pair_is_not_significant():
    result = anova_tukey_kramer(PLANTS)
    for pair in result.pairs:
        reach = result.half_width[pair.first] + result.half_width[pair.second]
        assert (abs(pair.difference) > reach) == (pair.p < 0.05)
    assert comparison_half_widths(np.array([4.0, 4.0]), 1.0, 3.0) == pytest.approx([0.75, 0.75])


def with_ties() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {f"m{i}": rng.integers(0, 5 + i, 8 + i).astype(float) for i in range(4)}


@pytest.mark.parametrize("groups", [PLANTS, with_ties()], ids=["few ties", "many ties"])
def test_dunn_agrees_with_scikit_posthocs(groups):
    posthocs = pytest.importorskip("scikit_posthocs", reason="scikit-posthocs is an oracle only")
    result = kruskal_dunn(groups)
    oracle = stats.kruskal(*groups.values())
    assert (result.statistic, result.p) == pytest.approx((oracle.statistic, oracle.pvalue))
    table = posthocs.posthoc_dunn([list(v) for v in groups.values()], p_adjust="holm").to_numpy()
    names = list(groups)
    for pair in result.pairs:
        assert pair.p == pytest.approx(table[names.index(pair.first), names.index(pair.second)], abs=1e-12)


def test_friedman_gives_the_published_value():
    name, statistic, p = friedman(BASE)
    assert name == "Friedman"
    assert statistic == pytest.approx(11.1429, abs=1e-4)  # R: friedman.test(RoundingTimes)
    assert p == pytest.approx(0.003805, abs=1e-6)


def test_two_methods_use_the_signed_rank_test():
    name, _, p = friedman(BASE[:, [0, 2]])
    assert name == "Wilcoxon signed rank"
    assert p == pytest.approx(stats.wilcoxon(BASE[:, 0] - BASE[:, 2]).pvalue)


def test_shapiro_is_scipy_s_on_groups_and_residuals():
    result = shapiro_wilk(PLANTS)
    assert result.groups["ctrl"][1] == pytest.approx(stats.shapiro(PLANTS["ctrl"]).pvalue)
    residuals = np.concatenate([v - v.mean() for v in PLANTS.values()])
    assert result.residuals[1] == pytest.approx(stats.shapiro(residuals).pvalue)
    assert result.is_normal()
    skewed = {name: np.exp(3 * values) for name, values in PLANTS.items()}
    assert not shapiro_wilk(skewed).is_normal()


def test_degenerate_data_do_not_break():
    same = {"a": np.ones(4), "b": np.ones(4)}
    assert anova_tukey_kramer(same).p == 1.0
    assert kruskal_dunn(same).p == 1.0
    assert not shapiro_wilk(same).is_normal()
    assert friedman(np.ones((4, 3)))[2] == 1.0
    with pytest.raises(UsageError, match="has none"):
        kruskal_dunn({"a": np.ones(3), "b": np.array([np.nan])})


# Fleiss (1971) as printed in Wikipedia's worked example: 10 subjects, 14 raters, 5 categories.
FLEISS = np.array(
    [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]
)  # fmt: skip


def test_fleiss_kappa_published_and_statsmodels():
    assert fleiss_kappa(FLEISS) == pytest.approx(0.210, abs=5e-4)
    agreement = pytest.importorskip("statsmodels.stats.inter_rater", reason="statsmodels is an oracle only")
    assert fleiss_kappa(FLEISS) == pytest.approx(agreement.fleiss_kappa(FLEISS))
    assert np.isnan(fleiss_kappa(np.array([[3, 0], [3, 0]])))


def test_krippendorff_alpha_published():
    # Krippendorff (2011), "Computing Krippendorff's alpha-reliability", part C: 4 observers, 12 units, nominal 0.743.
    n = np.nan
    ratings = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, n, n, n],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, n, 3],
            [n, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, n],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, n],
        ]
    )
    assert krippendorff_alpha(ratings) == pytest.approx(0.743, abs=5e-4)
    # Part A of the same paper: two observers, binary, 10 units: 0.095.
    binary = np.array([[0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]], dtype=float)
    assert krippendorff_alpha(binary) == pytest.approx(0.095, abs=5e-4)
    assert np.isnan(krippendorff_alpha(np.ones((3, 4))))
    assert np.isnan(krippendorff_alpha(np.full((3, 4), np.nan)))
