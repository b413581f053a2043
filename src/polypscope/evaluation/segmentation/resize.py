"""Resize an 8-bit image exactly as OpenCV's bilinear `resize` does, without OpenCV.

The SUN-SEG protocol resizes the prediction to the truth this way, so the arithmetic is part of the protocol: pixel
centres, weights rounded to 1/2048, two shifts, and the special case that halving both sides averages 2x2 blocks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from polypscope.evaluation.segmentation.kernels import resize_rows
except ImportError:  # no numba on this machine
    from polypscope.evaluation.segmentation.plain import resize_rows

Bytes = NDArray[np.uint8]


def resize_bilinear(image: Bytes, shape: tuple[int, int]) -> Bytes:
    """`image`, uint8 (h, w), at `shape` (height, width); equal to `cv2.resize(image, (width, height))`.

    >>> resize_bilinear(np.array([[0, 100]], np.uint8), (1, 4)).tolist()
    [[0, 25, 75, 100]]
    """
    height, width = image.shape
    if (height, width) == shape:
        return image
    if height == 2 * shape[0] and width == 2 * shape[1]:
        wide = image.astype(np.uint16)
        blocks = wide[::2, ::2] + wide[1::2, ::2] + wide[::2, 1::2] + wide[1::2, 1::2]
        return ((blocks + 2) >> 2).astype(np.uint8)
    x0, ax = _weights(width, shape[1], clamp=True)
    y0, ay = _weights(height, shape[0], clamp=False)
    return resize_rows(image, x0, ax, y0, ay)


@lru_cache(maxsize=32)
def _weights(before: int, after: int, clamp: bool) -> tuple[Any, Any]:
    """For each target pixel the first of its two source pixels and their weights in 1/2048, all int32.

    OpenCV holds the position in single precision and, along rows only, drops the weight of a neighbour that would lie
    outside (`clamp`); along columns it repeats the last row instead.
    """
    position = ((np.arange(after) + 0.5) * (1.0 / (after / before)) - 0.5).astype(np.float32)
    first = np.floor(position)
    part = position - first
    index = first.astype(np.int32)
    if clamp:
        outside = (index < 0) | (index >= before - 1)
        part[outside] = 0.0
        index = np.clip(index, 0, before - 1)
    weights = np.stack([np.float32(1.0) - part, part], axis=1) * np.float32(2048.0)
    return index, np.rint(weights).astype(np.int32)
