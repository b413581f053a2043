"""Clustered resampling: exact values for small cases, and the properties an interval and a p value must have."""

import numpy as np
import pytest

from polypscope.evaluation.bootstrap import bootstrap_weights, cluster_interval, exchange_signs, holm, paired_test
from polypscope.records.errors import RecordError


def test_weights_draw_whole_clusters() -> None:
    weights = bootstrap_weights(["a", "a", "b", "c"], replicates=200)
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, [0, 2, 3]].sum(axis=1) == 3).all()


def test_clustered_interval_is_wider_than_a_naive_one() -> None:
    rng = np.random.default_rng(1)
    case_level = rng.normal(0.7, 0.1, 12)
    values = np.repeat(case_level, 30) + rng.normal(0, 0.01, 360)
    clustered = cluster_interval(values, np.repeat(np.arange(12), 30).tolist())
    naive = cluster_interval(values, list(range(360)))
    assert clustered.high - clustered.low > 3 * (naive.high - naive.low)
    assert clustered.low < values.mean() < clustered.high


def test_one_cluster_has_no_interval() -> None:
    interval = cluster_interval(np.array([0.5, 0.7]), ["a", "a"])
    assert np.isnan([interval.low, interval.high]).all()


def test_interval_of_a_curve_maximum_takes_the_maximum_after_the_mean() -> None:
    curves = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert cluster_interval(curves, ["a", "b"], lambda m: m.max(axis=1)).estimate == 0.5


def test_paired_p_values() -> None:
    a = np.array([0.9, 0.8, 0.85, 0.7, 0.95])
    assert paired_test(a, a, list("abcde")).p == 1.0
    result = paired_test(a + 0.1, a, list("abcde"))
    assert result.exact
    assert result.p == 2 / 2**5
    assert result.difference == pytest.approx(0.1)
    assert paired_test(a, a + 0.1, list("abcde")).difference == pytest.approx(-0.1)


def test_paired_test_is_calibrated_under_the_null() -> None:
    rng = np.random.default_rng(3)
    p = [paired_test(rng.normal(size=20), rng.normal(size=20), list(range(20)), replicates=400).p for _ in range(200)]
    assert 0.01 <= np.mean(np.array(p) <= 0.05) <= 0.10


def test_exchange_keeps_clusters_together() -> None:
    signs, exact = exchange_signs(list(range(20)) * 2, replicates=50)
    assert not exact
    assert (signs[:, :20] == signs[:, 20:]).all()
    assert (signs[0] == 1).all()


def test_shapes_must_agree() -> None:
    with pytest.raises(RecordError, match="the shape of a"):
        paired_test(np.zeros(3), np.zeros(4), ["a", "b", "c"])


def test_holm_is_monotone_and_capped() -> None:
    assert holm([0.6, 0.7]) == [1.0, 1.0]
