"""Texture of a region as Haralick saw it: grey-level co-occurrence matrices and his thirteen features (1973)."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["FEATURES", "LENGTH", "cooccurrence", "haralick", "texture"]

FEATURES = (
    "angular second moment", "contrast", "correlation", "variance", "inverse difference moment", "sum average",
    "sum variance", "sum entropy", "entropy", "difference variance", "difference entropy", "information measure 1",
    "information measure 2",
)  # fmt: skip

_DISTANCES = (1, 3)
LENGTH = 2 * len(FEATURES) * len(_DISTANCES)  # of what `texture` gives
_DIRECTIONS = ((0, 1), (-1, 1), (-1, 0), (-1, -1))


@njit(cache=True, nogil=True)
def cooccurrence(grey, inside, dy, dx, levels):  # type: ignore[no-untyped-def]
    """Share of pixel pairs (p, p + offset), both inside, with grey levels (i, j), made symmetric: (levels, levels).

    grey: uint8 (H, W) with values below `levels`. All zero when no pair lies inside.
    """
    counts = np.zeros((levels, levels))
    height, width = grey.shape
    pairs = 0
    for y in range(max(0, -dy), min(height, height - dy)):
        for x in range(max(0, -dx), min(width, width - dx)):
            if inside[y, x] and inside[y + dy, x + dx]:
                i, j = grey[y, x], grey[y + dy, x + dx]
                counts[i, j] += 1
                counts[j, i] += 1
                pairs += 2
    return counts / max(pairs, 1)


@njit(cache=True, nogil=True)
def haralick(p):  # type: ignore[no-untyped-def]
    """The thirteen features of a symmetric co-occurrence matrix, in the order of `FEATURES`; logarithms are natural."""
    n = p.shape[0]
    marginal = np.zeros(n)
    sums = np.zeros(2 * n - 1)
    differences = np.zeros(n)
    energy = entropy = homogeneity = product = 0.0
    for i in range(n):
        for j in range(n):
            v = p[i, j]
            if v == 0:
                continue
            marginal[i] += v
            sums[i + j] += v
            differences[abs(i - j)] += v
            energy += v * v
            entropy -= v * np.log(v)
            homogeneity += v / (1 + (i - j) ** 2)
            product += i * j * v
    mean = 0.0
    for i in range(n):
        mean += i * marginal[i]
    variance = marginal_entropy = 0.0
    for i in range(n):
        variance += (i - mean) ** 2 * marginal[i]
        if marginal[i] > 0:
            marginal_entropy -= marginal[i] * np.log(marginal[i])
    sum_average = sum_entropy = 0.0
    for k in range(2 * n - 1):
        sum_average += k * sums[k]
        if sums[k] > 0:
            sum_entropy -= sums[k] * np.log(sums[k])
    sum_variance = 0.0
    for k in range(2 * n - 1):
        sum_variance += (k - sum_average) ** 2 * sums[k]
    contrast = difference_mean = difference_entropy = 0.0
    for k in range(n):
        contrast += k * k * differences[k]
        difference_mean += k * differences[k]
        if differences[k] > 0:
            difference_entropy -= differences[k] * np.log(differences[k])
    difference_variance = 0.0
    for k in range(n):
        difference_variance += (k - difference_mean) ** 2 * differences[k]
    # With one matrix that is symmetric, both marginals are the same, and HXY1 = HXY2 = 2 HX.
    out = np.zeros(13)
    out[0], out[1], out[2] = energy, contrast, (product - mean * mean) / variance if variance > 1e-12 else 1.0
    out[3], out[4], out[5] = variance, homogeneity, sum_average
    out[6], out[7], out[8] = sum_variance, sum_entropy, entropy
    out[9], out[10] = difference_variance, difference_entropy
    out[11] = (entropy - 2 * marginal_entropy) / marginal_entropy if marginal_entropy > 1e-12 else 0.0
    out[12] = np.sqrt(max(0.0, 1 - np.exp(-2 * (2 * marginal_entropy - entropy))))
    return out


def texture(
    grey: NDArray[np.uint8], inside: NDArray[np.bool_], *, levels: int = 32, distances: tuple[int, ...] = _DISTANCES
) -> NDArray[np.float64]:
    """Mean and range over four directions of the thirteen features at each distance, float64 (26 × distances,)."""
    coarse = (grey.astype(np.uint16) * levels // 256).astype(np.uint8)
    found = []
    for distance in distances:
        each = np.stack(
            [haralick(cooccurrence(coarse, inside, dy * distance, dx * distance, levels)) for dy, dx in _DIRECTIONS]
        )
        found += [each.mean(axis=0), each.max(axis=0) - each.min(axis=0)]
    return np.concatenate(found)
