"""Rankings by three schemes, their stability, and what a comparison says in words."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from polypscope.evaluation.bootstrap import cluster_interval
from polypscope.evaluation.statistics import SCHEMES, compare, rank_methods, ranking_stability, wilcoxon_wins
from polypscope.evaluation.statistics.ranking import _mean_kendall_tau, _signed_rank_z
from polypscope.records.errors import UsageError

# Method a has the best mean thanks to one case, b is better in three of four.
DISPUTED = np.array([[0.99, 0.50, 0.1], [0.40, 0.41, 0.1], [0.40, 0.42, 0.1], [0.40, 0.43, 0.1]])


def test_schemes_can_disagree():
    assert rank_methods(DISPUTED, "aggregate-then-rank").tolist() == [1, 2, 3]
    assert rank_methods(DISPUTED, "rank-then-aggregate").tolist() == [2, 1, 3]
    assert rank_methods(DISPUTED, "test-then-rank").tolist() == [2, 2, 2]  # four cases can show nothing


def clear(cases: int = 20) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.02, (cases, 3)) + np.array([0.9, 0.6, 0.3])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_clear_order_is_found_and_reversed_for_lower_is_better(scheme):
    assert rank_methods(clear(), scheme).tolist() == [1, 2, 3]
    assert rank_methods(clear(), scheme, higher_is_better=False).tolist() == [3, 2, 1]


def test_a_clear_order_is_stable_and_a_tie_is_not():
    for ranking in ranking_stability(clear(), "abc", range(20), replicates=200):
        assert ranking.frequency.diagonal().tolist() == [1, 1, 1], ranking.scheme
        assert ranking.kendall_tau == pytest.approx(1)
    noise = np.random.default_rng(1).normal(size=(20, 3))
    mean_rank = ranking_stability(noise, "abc", range(20), replicates=200)[0]
    assert mean_rank.frequency.max() < 0.95
    assert (mean_rank.high - mean_rank.low).max() >= 1


def test_signed_rank_normal_form_agrees_with_scipy():
    rng = np.random.default_rng(6)
    rows = rng.integers(-4, 6, (50, 25)).astype(float)
    for row, z in zip(rows, _signed_rank_z(rows), strict=True):
        oracle = stats.wilcoxon(row, alternative="greater", method="approx", correction=False).pvalue
        assert stats.norm.sf(z) == pytest.approx(oracle, abs=1e-9)


def test_kendall_tau_agrees_with_scipy():
    rank = np.array([1.0, 2.5, 2.5, 4.0])
    drawn = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 1.5, 1.5], [2.0, 1.0, 4.0, 3.0]])
    oracle = np.mean([stats.kendalltau(rank, row).statistic for row in drawn])
    assert _mean_kendall_tau(rank, drawn) == pytest.approx(oracle)


def test_wins_are_holm_adjusted():
    p = wilcoxon_wins(clear())
    raw = stats.wilcoxon(clear()[:, 0] - clear()[:, 1], alternative="greater").pvalue
    assert np.isnan(p.diagonal()).all()
    assert p[0, 1] == pytest.approx(6 * raw)
    assert p[1, 0] == 1.0


def test_clusters_are_drawn_whole():
    # Two clusters that disagree completely: the winner is the cluster drawn more often, or a tie of both.
    scores = np.array([[1.0, 0.0]] * 10 + [[0.0, 1.0]] * 10)
    ranking = ranking_stability(scores, "ab", ["p"] * 10 + ["q"] * 10, replicates=2000)[0]
    assert ranking.frequency[0, 0] == pytest.approx(0.25, abs=0.04)


def test_bootstrap_interval_covers_the_truth_about_as_often_as_it_says():
    """30 clusters of 4 correlated values; the interval that ignores clusters covers far too rarely."""
    rng = np.random.default_rng(7)
    clusters = np.repeat(np.arange(30), 4)
    trials, covered, naive = 200, 0, 0
    for trial in range(trials):
        values = 0.5 + rng.normal(0, 1, 30)[clusters] + rng.normal(0, 0.3, 120)
        interval = cluster_interval(values, list(clusters), replicates=300, seed=trial)
        covered += interval.low <= 0.5 <= interval.high
        wrong = cluster_interval(values, list(range(120)), replicates=300, seed=trial)
        naive += wrong.low <= 0.5 <= wrong.high
    # 95 % nominal, about 93 % expected of a percentile bootstrap with 30 clusters; 3 SD of 200 trials are 5 %.
    assert 0.88 <= covered / trials <= 0.99
    assert naive / trials < 0.80


METHODS = ("good", "fair", "poor")
CASES = tuple(f"v{i}" for i in range(20))


def test_comparison_of_a_clear_case_says_so():
    result = compare(clear(), METHODS, CASES, metric="F1", replicates=100)
    text = " ".join(result.summary())
    assert result.best == "good"
    assert result.omnibus.test.startswith("one-way ANOVA")
    assert "good differs significantly from fair and poor." in text
    assert "All three ranking schemes put good first." in text
    assert "F1 of 3 methods on 20 cases in 20 clusters" in text


def test_comparison_of_noise_does_not_claim_equality():
    noise = np.random.default_rng(11).normal(0.5, 0.1, (9, 3))
    text = " ".join(compare(noise, METHODS, CASES[:9], metric="F1", replicates=100).summary())
    assert "no difference between methods is shown" in text
    assert "This is not proof that they are equal." in text
    assert "9 clusters are few" in text


def test_skewed_data_are_compared_by_ranks():
    skewed = np.exp(4 * np.random.default_rng(3).normal(size=(20, 3)))
    result = compare(skewed, METHODS, CASES, replicates=50)
    assert result.omnibus.test.startswith("Kruskal")
    assert any("ranks are compared" in line for line in result.summary())


def test_missing_values_are_named_not_hidden():
    scores = clear()
    scores[3, 2] = np.nan
    by_case = compare(scores, METHODS, CASES, replicates=50)
    assert by_case.dropped_cases == ("v3",)
    by_method = compare(scores, METHODS, CASES, missing="drop-methods", replicates=50)
    assert (by_method.dropped_methods, len(by_method.cases)) == (("poor",), 20)
    assert any("Left out because a value is missing: poor." in line for line in by_method.summary())


def test_errors():
    with pytest.raises(UsageError, match="same two cases"):
        compare(np.full((3, 2), np.nan), ("a", "b"), CASES[:3])
    with pytest.raises(UsageError, match="3 cases × 2 methods"):
        compare(np.ones((2, 2)), ("a", "b"), CASES[:3])
