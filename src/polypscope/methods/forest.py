"""A random forest (Breiman 2001) as five flat arrays, which a file can hold without pickling anything.

Features are cut into bins at their quantiles once, so that the search for a split is a pass over small integers. Every
tree sees a sample of the rows, every split a sample of the features; an answer is the mean of the shares of the classes
in the leaves that a row falls into. OpenCV 5 has no forest any more, and scikit-learn would be a heavy guest for one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from polypscope.records.errors import RecordError

__all__ = ["Forest", "best_gini_split", "fit_forest"]

BINS = 32


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees in one list of nodes.

    root: int32 (trees,), where each begins. feature: int32 (nodes,), -1 in a leaf. threshold: float32 (nodes,); a row
    goes on at `child` (int32) where its feature lies below, else at the node after it. share: float32 (nodes, classes).
    """

    root: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    child: NDArray[np.int32]
    share: NDArray[np.float32]

    def __post_init__(self) -> None:
        nodes = len(self.feature)
        inner = self.feature >= 0
        after = self.child[inner]
        sound = (
            nodes == len(self.threshold) == len(self.child) == len(self.share)
            and len(self.root) > 0
            and 0 <= int(self.root.min()) <= int(self.root.max()) < nodes
            # A child comes after its parent, so that every way down ends.
            and bool(np.all(after > np.flatnonzero(inner)) and np.all(after < nodes - 1))
            and bool(np.all(self.share >= 0) and np.allclose(self.share.sum(axis=1), 1, atol=1e-4))
        )
        if not sound:
            raise RecordError.of("Forest", expected="trees whose every way ends in a leaf", found="other numbers")

    def probability(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Share of each class for rows of `values` (n, features): float32 (n, classes), each row adding up to 1."""
        rows = np.ascontiguousarray(values, dtype=np.float32)
        return np.asarray(_descend(rows, self.root, self.feature, self.threshold, self.child, self.share))


def fit_forest(
    values: NDArray[np.float32],
    labels: NDArray[np.int64],
    classes: int,
    *,
    trees: int = 24,
    depth: int = 14,
    least: int = 6,
    tries: int | None = None,
    seed: int = 0,
) -> Forest:
    """Grow `trees` on rows of `values` (n, features) with `labels` from 0 to below `classes`.

    A leaf has at least `least` rows, and no way is longer than `depth`. Each split tries `tries` features, the root of
    their number if not given. The same seed grows the same trees.
    """
    if not len(values) or not 0 <= labels.min() <= labels.max() < classes:
        raise RecordError.of("training", expected=f"rows with labels below {classes}", found=f"{len(values)} rows")
    cuts = [np.unique(np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1])).astype(np.float32) for column in values.T]
    binned = np.stack(
        [np.searchsorted(cut, column, side="right") for cut, column in zip(cuts, values.T, strict=True)]
    ).astype(np.uint8)
    tries = min(tries or max(1, round(values.shape[1] ** 0.5)), values.shape[1])
    rng = np.random.default_rng(seed)
    most = 2 * (len(values) // least) + 3  # nodes
    root, parts, total = [], [], 0
    for _ in range(trees):
        rows = np.sort(rng.integers(0, len(values), len(values)))
        feature, cut, child, share = _grow(
            binned, labels.astype(np.int64), rows, classes, depth, least, rng.random((most, tries))
        )
        threshold = np.array([cuts[f][c] if f >= 0 else 0 for f, c in zip(feature, cut, strict=True)], np.float32)
        root.append(total)
        parts.append((feature, threshold, np.where(feature >= 0, child + total, 0).astype(np.int32), share))
        total += len(feature)
    feature, threshold, child, share = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Forest(np.array(root, np.int32), feature, threshold, child, share)


@njit(cache=True, nogil=True)
def best_gini_split(binned, labels, rows, features, classes, least):  # type: ignore[no-untyped-def]
    """(feature, last bin below) of the split of `rows` with the least Gini impurity; (-1, 0) if none lessens it."""
    whole = np.zeros(classes)
    for i in rows:
        whole[labels[i]] += 1
    best = (whole * whole).sum() / len(rows) + 1e-9
    chosen, at = -1, 0
    for f in features:
        count = np.zeros((BINS, classes))
        for i in rows:
            count[binned[f, i], labels[i]] += 1
        low = np.zeros(classes)
        below = 0.0
        for b in range(BINS - 1):
            squares_low = squares_high = 0.0
            for c in range(classes):
                low[c] += count[b, c]
                below += count[b, c]
                squares_low += low[c] * low[c]
                squares_high += (whole[c] - low[c]) ** 2
            above = len(rows) - below
            if below < least or above < least:
                continue
            purity = squares_low / below + squares_high / above
            if purity > best:
                best, chosen, at = purity, f, b
    return chosen, at


@njit(cache=True, nogil=True)
def _grow(binned, labels, rows, classes, depth, least, draws):  # type: ignore[no-untyped-def]
    """One tree, level by level: feature, last bin below, first child and shares of its nodes."""
    most, tries = draws.shape
    feature = np.full(most, -1, np.int32)
    cut = np.zeros(most, np.int32)
    child = np.zeros(most, np.int32)
    share = np.zeros((most, classes), np.float32)
    begin, end, level = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    end[0] = len(rows)
    nodes = 1
    order = np.arange(binned.shape[0])
    rest = np.empty_like(rows)
    node = 0
    while node < nodes:
        here = rows[begin[node] : end[node]]
        for i in here:
            share[node, labels[i]] += 1
        pure = share[node].max() == len(here)
        share[node] /= len(here)
        if not pure and level[node] < depth and len(here) >= 2 * least:
            for k in range(tries):  # the first of a shuffle
                other = k + int(draws[node, k] * (len(order) - k))
                order[k], order[other] = order[other], order[k]
            f, at = best_gini_split(binned, labels, here, order[:tries], classes, least)
            if f >= 0:
                low = high = 0
                for k in range(len(here)):
                    if binned[f, here[k]] <= at:
                        here[low] = here[k]
                        low += 1
                    else:
                        rest[high] = here[k]
                        high += 1
                here[low:] = rest[:high]
                feature[node], cut[node], child[node] = f, at, nodes
                begin[nodes], end[nodes] = begin[node], begin[node] + low
                begin[nodes + 1], end[nodes + 1] = begin[node] + low, end[node]
                level[nodes] = level[nodes + 1] = level[node] + 1
                nodes += 2
        node += 1
    return feature[:nodes], cut[:nodes], child[:nodes], share[:nodes]


@njit(cache=True, nogil=True)
def _descend(values, root, feature, threshold, child, share):  # type: ignore[no-untyped-def]
    out = np.zeros((len(values), share.shape[1]), np.float32)
    for i in range(len(values)):
        for r in root:
            node = r
            while feature[node] >= 0:
                node = child[node] if values[i, feature[node]] < threshold[node] else child[node] + 1
            for c in range(share.shape[1]):
                out[i, c] += share[node, c]
    return out / np.float32(len(root))
