"""Masks as shapes: parts, outline, hull and axes in pixels.

The outline is the chain of pixel edges between mask and background, one point at the middle of each edge. A pixel
belongs to a mask when its centre does, so the true border crosses between the two centres; the middle is right on
average, while the border pixels' own centres would make every mask half a pixel too small on each side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.records import BinaryMask

__all__ = ["Outline", "diameter", "feret", "hull", "largest_part", "outline", "touches", "touches_border"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Outline:
    """Border of a mask: `uv` (n, 2) edge middles, `inside` and `outside` (n, 2) the pixels (row, column) on each side.

    `outside` may lie beyond the picture, where the mask touches its border.
    """

    uv: Array
    inside: NDArray[np.intp]
    outside: NDArray[np.intp]


def outline(mask: BinaryMask) -> Outline:
    """The border of a mask, in no particular order.

    >>> outline(BinaryMask(np.array([[False, True, False]]))).uv.tolist()
    [[0.5, 0.0], [1.5, 0.0], [1.0, -0.5], [1.0, 0.5]]
    """
    window = _box(mask.values)
    values = mask.values[window]
    corner = np.array([window[0].start, window[1].start])
    padded = np.pad(values, 1)
    inside, outside = [], []
    for dy, dx in ((0, -1), (0, 1), (-1, 0), (1, 0)):
        neighbour = padded[1 + dy : padded.shape[0] - 1 + dy, 1 + dx : padded.shape[1] - 1 + dx]
        found = np.argwhere(values & ~neighbour) + corner
        inside.append(found)
        outside.append(found + np.array([dy, dx]))
    a, b = np.concatenate(inside), np.concatenate(outside)
    return Outline((a + b)[:, ::-1] / 2.0, a, b)


def _box(values: NDArray[np.bool_]) -> tuple[slice, slice]:
    """The smallest window that holds every pixel of a mask: a polyp is a small part of its picture."""
    rows, columns = np.flatnonzero(values.any(axis=1)), np.flatnonzero(values.any(axis=0))
    if rows.size == 0:
        return slice(0, 0), slice(0, 0)
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def largest_part(mask: BinaryMask) -> BinaryMask:
    """The largest 8-connected part of a mask, its holes filled.

    >>> largest_part(BinaryMask(np.array([[True, False, True, True]]))).values.tolist()
    [[False, False, True, True]]
    """
    from scipy import ndimage

    window = _box(mask.values)
    labels, count = ndimage.label(mask.values[window], np.ones((3, 3)))
    if count == 0:
        return mask
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    part = np.zeros(mask.shape, bool)
    part[window] = ndimage.binary_fill_holes(labels == int(np.argmax(sizes)))
    return BinaryMask(part)


def touches_border(mask: BinaryMask, margin_px: int = 1) -> bool:
    """Whether any pixel of the mask lies within `margin_px` of the picture's edge.

    >>> touches_border(BinaryMask(np.array([[True, False], [False, False]])))
    True
    """
    inner = mask.values[margin_px:-margin_px, margin_px:-margin_px]
    return int(np.count_nonzero(inner)) != mask.area_px


def touches(mask: BinaryMask, region: NDArray[np.bool_]) -> bool:
    """Whether any pixel of the mask is in `region` or beside it.

    >>> touches(BinaryMask(np.array([[True, False, False]])), np.array([[False, False, True]]))
    False
    """
    from scipy import ndimage

    return bool(np.any(ndimage.binary_dilation(mask.values, np.ones((3, 3))) & region))


def hull(points: Array) -> Array:
    """The points (k, d) of the convex hull of (n, d); all points where they are too few or lie in a plane."""
    from scipy.spatial import ConvexHull, QhullError

    if len(points) <= points.shape[1] + 1:
        return points
    try:
        return np.asarray(points[ConvexHull(points).vertices])
    except QhullError:
        return points


def diameter(points: Array) -> tuple[float, int, int]:
    """Largest distance between any two of the points (n, d), and which two.

    >>> diameter(np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 3.0]]))
    (5.0, 0, 2)
    """
    from scipy.spatial.distance import pdist, squareform

    distances = squareform(pdist(points))
    i, j = np.unravel_index(int(np.argmax(distances)), distances.shape)
    return float(distances[i, j]), int(i), int(j)


def feret(mask: BinaryMask) -> tuple[Array, float]:
    """Ends (2, 2) of the longest line across a mask, and the mask's width at right angles to it, in pixels.

    >>> ends, width = feret(BinaryMask(np.ones((2, 5), bool)))
    >>> round(float(np.linalg.norm(ends[0] - ends[1])), 2), round(width, 2)
    (5.1, 2.75)
    """
    points = hull(outline(mask).uv)
    _, i, j = diameter(points)
    along = (points[j] - points[i]) / np.linalg.norm(points[j] - points[i])
    across = points @ np.array([-along[1], along[0]])
    return points[[i, j]], float(np.ptp(across))
