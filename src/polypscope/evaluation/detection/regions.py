"""Many small masks and boxes in one compact block, and the exact questions that matching asks of them.

A study of 17,574 frames at 1920 × 1080 would need 36 GB as full masks. Here each region keeps only its bounding
crop, one bit per pixel, so that the truth of a whole study stays in memory while every subset of every method is
matched against it. A region without bits is a full rectangle (a box annotation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["Regions", "RegionsBuilder", "contains", "intersection_px"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Regions:
    """`n` regions: `box` (n, 4) float x, y, width, height in px; `crop` (n, 4) the pixels they span; `start` (n,) byte
    offset of the region's bits in `bits`, or -1 for a full rectangle; `area_px` (n,).
    """

    box: FloatArray
    crop: IntArray
    start: IntArray
    bits: NDArray[np.uint8]
    area_px: IntArray

    def __len__(self) -> int:
        return len(self.start)

    def mask(self, row: int) -> tuple[int, int, NDArray[np.bool_]]:
        """Column and row of the crop's corner, and the crop as bool (h, w)."""
        x0, y0, w, h = (int(v) for v in self.crop[row])
        if self.start[row] < 0:
            return x0, y0, np.ones((h, w), dtype=np.bool_)
        first = int(self.start[row])
        flat = np.unpackbits(self.bits[first : first + (w * h + 7) // 8], count=w * h)
        return x0, y0, flat.reshape(h, w).astype(np.bool_)


class RegionsBuilder:
    """Collects regions one by one; `build()` gives the block.

    >>> builder = RegionsBuilder()
    >>> builder.add_mask(np.array([[0, 1], [1, 1]], dtype=bool), x0=5, y0=7)
    >>> builder.add_box(0, 0, 2, 3)
    >>> regions = builder.build()
    >>> regions.area_px.tolist(), regions.crop.tolist()
    ([3, 6], [[5, 7, 2, 2], [0, 0, 2, 3]])
    """

    def __init__(self) -> None:
        self._box: list[tuple[float, float, float, float]] = []
        self._crop: list[tuple[int, int, int, int]] = []
        self._start: list[int] = []
        self._area: list[int] = []
        self._bits: list[NDArray[np.uint8]] = []
        self._size = 0

    def add_mask(self, mask: NDArray[np.bool_], *, x0: int = 0, y0: int = 0) -> None:
        """Add a bool mask (h, w) whose upper left pixel is (x0, y0); it is cropped to its set pixels."""
        rows = np.flatnonzero(mask.any(axis=1))
        if rows.size == 0:  # an empty region can be matched by nothing, but keeps its place in the table
            self._append((float(x0), float(y0), 0.0, 0.0), (x0, y0, 0, 0), -1, 0)
            return
        band = mask[rows[0] : rows[-1] + 1]
        columns = np.flatnonzero(band.any(axis=0))
        crop = band[:, columns[0] : columns[-1] + 1]
        height, width = crop.shape
        packed = np.packbits(crop)
        corner_x, corner_y = x0 + int(columns[0]), y0 + int(rows[0])
        self._append(
            (float(corner_x), float(corner_y), float(width), float(height)),
            (corner_x, corner_y, width, height),
            self._size,
            int(np.count_nonzero(crop)),
        )
        self._bits.append(packed)
        self._size += packed.size

    def add_box(self, x: float, y: float, width: float, height: float) -> None:
        """Add a box in px; its pixels are those that the half-open box touches with their `int()` coordinates."""
        x0, y0 = int(np.floor(x)), int(np.floor(y))
        w, h = int(np.ceil(x + width)) - x0, int(np.ceil(y + height)) - y0
        self._append((x, y, width, height), (x0, y0, max(w, 0), max(h, 0)), -1, max(w, 0) * max(h, 0))

    def _append(
        self, box: tuple[float, float, float, float], crop: tuple[int, int, int, int], start: int, area: int
    ) -> None:
        self._box.append(box)
        self._crop.append(crop)
        self._start.append(start)
        self._area.append(area)

    def build(self) -> Regions:
        """The block of everything added so far."""
        return Regions(
            box=np.array(self._box, dtype=np.float64).reshape(-1, 4),
            crop=np.array(self._crop, dtype=np.int64).reshape(-1, 4),
            start=np.array(self._start, dtype=np.int64),
            bits=np.concatenate(self._bits) if self._bits else np.zeros(1, dtype=np.uint8),
            area_px=np.array(self._area, dtype=np.int64),
        )


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def contains(crop: IntArray, start: IntArray, bits: NDArray[np.uint8], row: int, x: int, y: int) -> bool:
    """Whether pixel (x, y) belongs to region `row`."""
    dx = x - crop[row, 0]
    dy = y - crop[row, 1]
    width = crop[row, 2]
    if dx < 0 or dy < 0 or dx >= width or dy >= crop[row, 3]:
        return False
    if start[row] < 0:
        return True
    k = dy * width + dx
    return bool((bits[start[row] + (k >> 3)] >> (7 - (k & 7))) & 1)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def intersection_px(
    crop_a: IntArray,
    start_a: IntArray,
    bits_a: NDArray[np.uint8],
    a: int,
    crop_b: IntArray,
    start_b: IntArray,
    bits_b: NDArray[np.uint8],
    b: int,
) -> int:
    """Number of pixels that region `a` of one block shares with region `b` of another."""
    left = max(crop_a[a, 0], crop_b[b, 0])
    top = max(crop_a[a, 1], crop_b[b, 1])
    right = min(crop_a[a, 0] + crop_a[a, 2], crop_b[b, 0] + crop_b[b, 2])
    bottom = min(crop_a[a, 1] + crop_a[a, 3], crop_b[b, 1] + crop_b[b, 3])
    if right <= left or bottom <= top:
        return 0
    if start_a[a] < 0 and start_b[b] < 0:
        return int((right - left) * (bottom - top))
    shared = 0
    for y in range(top, bottom):
        for x in range(left, right):
            if contains(crop_a, start_a, bits_a, a, x, y) and contains(crop_b, start_b, bits_b, b, x, y):
                shared += 1
    return shared
