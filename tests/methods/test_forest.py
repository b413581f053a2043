"""The random forest: its splits against trying all, its answers on problems whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polypscope.methods.forest import BINS, Forest, best_gini_split, fit_forest
from polypscope.records.errors import RecordError


def _gini(labels: np.ndarray) -> float:
    share = np.bincount(labels) / max(len(labels), 1)
    return len(labels) * (1 - (share**2).sum())


@pytest.mark.parametrize("seed", range(4))
def test_the_best_split_equals_trying_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    binned = rng.integers(0, 7, (4, 90)).astype(np.uint8)
    labels = (binned[seed] + rng.integers(0, 4, 90)) // 4
    rows = np.sort(rng.integers(0, 90, 70))
    errors = {}
    for f in range(4):
        for cut in range(6):
            low = binned[f, rows] <= cut
            if min(low.sum(), (~low).sum()) >= 5:
                errors[f, cut] = _gini(labels[rows][low]) + _gini(labels[rows][~low])
    found = best_gini_split(binned, labels, rows, np.arange(4), 4, 5)
    assert errors[found] == pytest.approx(min(errors.values()))


def test_a_split_that_gains_nothing_is_not_made() -> None:
    binned = np.array([[0, 0, 1, 1]], np.uint8)
    assert best_gini_split(binned, np.array([0, 1, 0, 1]), np.arange(4), np.arange(1), 2, 1)[0] == -1


def test_it_learns_what_no_single_feature_tells() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, (3000, 5)).astype(np.float32)
    labels = (values[:, 0] * values[:, 1] > 0).astype(np.int64) + (values[:, 4] > 1)
    forest = fit_forest(values[:2000], labels[:2000], 3, trees=20, tries=5)
    answer = forest.probability(values[2000:])
    assert (answer.argmax(axis=1) == labels[2000:]).mean() > 0.9
    assert answer.sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_one_tree_on_one_feature_gives_the_shares_on_either_side() -> None:
    values = np.arange(BINS * 4, dtype=np.float32)[:, None]
    labels = (values[:, 0] >= 64).astype(np.int64)
    forest = fit_forest(values, labels, 4, trees=1, depth=1, least=1)
    assert len(forest.feature) == 3
    low, high = forest.probability(np.array([[3.0], [120.0]]))
    assert low.tolist() == [1, 0, 0, 0]
    assert high.tolist() == [0, 1, 0, 0]


def test_depth_and_leaves_are_limited() -> None:
    rng = np.random.default_rng(1)
    values, labels = rng.normal(0, 1, (500, 6)).astype(np.float32), rng.integers(0, 2, 500)
    shallow = fit_forest(values, labels, 2, trees=3, depth=2)
    assert len(shallow.feature) <= 3 * 7
    coarse = fit_forest(values, labels, 2, trees=1, least=100)
    assert (coarse.feature < 0).sum() <= 5


def test_the_seed_decides() -> None:
    rng = np.random.default_rng(1)
    values, labels = rng.normal(0, 1, (400, 6)).astype(np.float32), rng.integers(0, 2, 400)
    one, same, other = (fit_forest(values, labels, 2, trees=4, seed=s).probability(values) for s in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_forest_whose_ways_do_not_end_is_refused() -> None:
    good = Forest(
        np.array([0], np.int32), np.array([0, -1, -1], np.int32), np.zeros(3, np.float32),
        np.array([1, 0, 0], np.int32), np.full((3, 2), 0.5, np.float32),
    )  # fmt: skip
    for change in (
        {"child": np.array([0, 0, 0], np.int32)},
        {"child": np.array([2, 0, 0], np.int32)},
        {"root": np.array([3], np.int32)},
        {"root": np.array([-1], np.int32)},
        {"share": np.ones((3, 2), np.float32)},
        {"threshold": np.zeros(2, np.float32)},
    ):
        with pytest.raises(RecordError, match="every way ends in a leaf"):
            replace(good, **change)


def test_labels_beyond_the_classes_are_refused() -> None:
    with pytest.raises(RecordError, match="labels below 2"):
        fit_forest(np.zeros((3, 1), np.float32), np.array([0, 1, 2]), 2)
