"""The functions of `kernels.py` in numpy and scipy: slower, obvious, and with the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion, convolve, distance_transform_edt
from scipy.spatial import cKDTree

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def truth_moments(truth: Bytes, above: int) -> Ints:
    """Pixels above `above`: [count, sum of x, sum of y, first row, last row, first column, last column]."""
    rows, columns = np.nonzero(truth > above)
    if not len(rows):
        height, width = truth.shape
        return np.array([0, 0, 0, height, -1, width, -1], np.int64)
    box = [rows.min(), rows.max(), columns.min(), columns.max()]
    return np.array([len(rows), columns.sum(), rows.sum(), *box], np.int64)


def quadrant_histograms(truth: Bytes, prediction: Bytes, above: int, split_y: int, split_x: int) -> Ints:
    """Grey levels of the prediction, (4, 2, 256): quadrants LT, RT, LB, RB; outside and inside the truth."""
    result = np.zeros((4, 2, 256), np.int64)
    rows, columns = (slice(0, split_y), slice(split_y, None)), (slice(0, split_x), slice(split_x, None))
    for quadrant in range(4):
        window = rows[quadrant // 2], columns[quadrant % 2]
        inside = truth[window] > above
        for side in (0, 1):
            result[quadrant, side] = np.bincount(prediction[window][inside == bool(side)], minlength=256)
    return result


def weighted_error_sums(truth: Bytes, prediction: Bytes, above: int, level: Floats, box: Ints) -> tuple[float, float]:
    """The two sums of weighted F that need positions: error inside the truth, and faded level outside it."""
    inside = truth > above
    value = level[prediction]
    distance, nearest = distance_transform_edt(~inside, return_indices=True)
    error = np.where(inside, 1.0 - value, value)
    spread = np.where(inside, error, error[nearest[0], nearest[1]])
    gauss = np.exp(-(np.arange(-3.0, 4.0) ** 2) / 50.0)
    kernel = np.outer(gauss, gauss)
    smooth = convolve(spread, kernel / kernel.sum(), mode="constant", cval=0.0)
    faded = value * np.exp(np.log(0.5) / 5.0 * distance)
    return float(np.minimum(error, smooth)[inside].sum()), float(faded[~inside].sum())


def resize_rows(image: Bytes, x0: Any, ax: Any, y0: Any, ay: Any) -> Bytes:
    """Blend pixels by 11-bit weights as OpenCV does; `resize.py` makes the tables."""
    height, width = image.shape
    wide = image.astype(np.int32)
    strips = (wide[:, x0] * ax[:, 0] + wide[:, np.minimum(x0 + 1, width - 1)] * ax[:, 1]) >> 4
    upper, lower = strips[np.clip(y0, 0, height - 1)], strips[np.clip(y0 + 1, 0, height - 1)]
    blended = (((ay[:, :1] * upper) >> 16) + ((ay[:, 1:] * lower) >> 16) + 2) >> 2
    result: Bytes = blended.astype(np.uint8)
    return result


def outline_pixels(image: Bytes, above: int) -> NDArray[np.int32]:
    """(row, column) of the pixels above `above` that touch one that is not, or the image's edge; int32 (n, 2)."""
    mask = image > above
    return np.argwhere(mask & ~binary_erosion(mask)).astype(np.int32)


def nearest_squared(a: NDArray[np.int32], b: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Squared distance from each point of `a` to the nearest of `b`, and from each of `b` to the nearest of `a`."""
    to_b, to_a = cKDTree(b).query(a)[0], cKDTree(a).query(b)[0]
    return np.rint(to_b**2).astype(np.int32), np.rint(to_a**2).astype(np.int32)
