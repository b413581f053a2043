"""Area averaging of 8-bit pictures: the same bytes as `cv2.INTER_AREA`, several times faster.

OpenCV adds every pixel in floating point, row by row. But the weights are whole numbers: n input pixels onto m output
pixels overlap in multiples of gcd(n, m) / m of a pixel. So rows are added first, as long runs of neighbouring bytes,
and columns afterwards, when few rows are left. Where the exact average lies so near to half-way between two grey
levels that OpenCV's rounding errors decide, that one value is computed again in OpenCV's order.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from math import ceil, floor, gcd
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["shrunk"]

Table = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
LARGE = 3_000_000  # bytes of a picture from which on two threads share it; below, waking one costs what it saves
NEAR = 2e-3  # grey levels around a tie within which rounding errors of float32 sums can decide


@lru_cache(maxsize=16)
def _table(inputs: int, outputs: int) -> Table:
    """What each output pixel of a line averages: (first, count) of the inputs, whole weights, OpenCV's weights.

    first and count: (2, outputs, 2), for the whole weights and for OpenCV's, which leave out slivers below 0.001 pixel.
    """
    common = gcd(inputs, outputs)
    wide, narrow = inputs // common, outputs // common
    taps = ceil(inputs / outputs) + 2
    spans = np.zeros((2, outputs, 2), np.int64)
    whole, alpha = np.zeros((outputs, taps), np.int64), np.zeros((outputs, taps), np.float32)
    scale = 1.0 / (outputs / inputs)
    for i in range(outputs):
        begin, end = i * wide, (i + 1) * wide
        first, last = begin // narrow, (end - 1) // narrow
        spans[0, i] = first, last + 1 - first
        for j in range(first, last + 1):
            whole[i, j - first] = min((j + 1) * narrow, end) - max(j * narrow, begin)
        low = i * scale
        high, cell = low + scale, min(scale, inputs - low)
        after = min(floor(high), inputs - 1)
        before = min(ceil(low), after)
        weights = [(before - low) / cell] if before - low > 1e-3 else []
        first = before - len(weights)
        weights += [1.0 / cell] * (after - before)
        if high - after > 1e-3:
            weights.append(min(high - after, 1.0, cell) / cell)
        spans[1, i] = first, len(weights)
        alpha[i, : len(weights)] = weights
    return spans, whole, alpha


if TYPE_CHECKING:

    def _averaged(
        rgb: NDArray[np.uint8], out: NDArray[np.uint8], rows: Table, columns: Table, first: int, last: int
    ) -> None: ...
else:
    import numba

    def _compiled(function: Any) -> Any:
        options = {"nogil": True, "boundscheck": False}
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # neither the package nor the user has a folder that can keep compiled code
            return numba.njit(**options)(function)

    @_compiled
    def _as_opencv(rgb, y, x, channel, rows, columns):
        spans_y, _, betas = rows
        spans_x, _, alphas = columns
        total = np.float32(0)
        for j in range(spans_y[1, y, 1]):
            line = rgb[spans_y[1, y, 0] + j]
            part = np.float32(0)
            for i in range(spans_x[1, x, 1]):
                part += np.float32(line[3 * (spans_x[1, x, 0] + i) + channel]) * alphas[x, i]
            total += betas[y, j] * part
        return np.uint8(np.rint(total))

    @_compiled
    def _averaged(rgb, out, rows, columns, first, last):
        """rgb (H, W·3) to the rows from first to last of out (h, w·3)."""
        spans_y, weights_y, _ = rows
        spans_x, weights_x, _ = columns
        sums = np.empty(rgb.shape[1], np.uint32)
        parts = np.zeros(3, np.int64)
        share = 1.0 / (weights_y[0].sum() * weights_x[0].sum())
        for y in range(first, last):
            sums[:] = 0
            for j in range(spans_y[0, y, 1]):
                weight = np.uint32(weights_y[y, j])
                line = rgb[spans_y[0, y, 0] + j]
                for k in range(line.size):
                    sums[k] += weight * np.uint32(line[k])
            for x in range(out.shape[1] // 3):
                parts[:] = 0
                for i in range(spans_x[0, x, 1]):
                    place, weight_x = 3 * (spans_x[0, x, 0] + i), weights_x[x, i]
                    parts[0] += weight_x * np.int64(sums[place])
                    parts[1] += weight_x * np.int64(sums[place + 1])
                    parts[2] += weight_x * np.int64(sums[place + 2])
                for channel in range(3):
                    value = parts[channel] * share + 0.5
                    level = np.int64(value)
                    if value - level < NEAR or value - level > 1 - NEAR:
                        out[y, 3 * x + channel] = _as_opencv(rgb, y, x, channel, rows, columns)
                    else:
                        out[y, 3 * x + channel] = np.uint8(level)


def shrunk(rgb: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """A picture (H, W, 3) uint8 at another size, by area averaging, as `cv2.resize(..., INTER_AREA)` does it.

    >>> shrunk(np.arange(24, dtype=np.uint8).reshape(2, 4, 3), 2, 1).tolist()
    [[[8, 9, 10], [14, 15, 16]]]
    """
    rows, columns = rgb.shape[:2]
    grows = rows < height or columns < width
    if grows or (rows % height == 0 and columns % width == 0):  # OpenCV has other, fast rules for these
        return np.asarray(cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    flat = np.ascontiguousarray(rgb).reshape(rows, columns * 3)
    out = np.empty((height, width * 3), np.uint8)
    work = (flat, out, _table(rows, height), _table(columns, width))
    if flat.size < LARGE:
        _averaged(*work, 0, height)
    else:
        lower = _beside(os.getpid()).submit(_averaged, *work, height // 2, height)
        _averaged(*work, 0, height // 2)
        lower.result()
    return out.reshape(height, width, 3)


@cache
def _beside(process: int) -> ThreadPoolExecutor:
    """A second thread of this process, which takes the lower half of a large picture; a forked one has none yet."""
    return ThreadPoolExecutor(1, "area")
