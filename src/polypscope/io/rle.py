"""Masks as COCO run-length codes and polygons.

The code counts runs of background and foreground in column-major order; its compressed form packs the differences of
every second count in 5-bit groups as printable bytes. Both, and the rasterisation of polygons (on a grid five times
finer, then sampled), follow Microsoft's `maskApi.c`, so that a file made by one program means the same to the other.
Ours differs in one point: a polygon edge of length zero, undefined there, is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.records.errors import DamagedInput

__all__ = ["RunLengths", "mask_from_polygons"]

_POLYGON_SCALE = 5
_GROUP_BITS = 5
_MAX_GROUPS = 12  # 60 bits: more than any image that fits in memory needs


@dataclass(frozen=True)
class RunLengths:
    """A binary mask as alternating run lengths, background first, in column-major order.

    >>> mask = np.array([[0, 1], [0, 1]], dtype=bool)
    >>> code = RunLengths.from_mask(mask)
    >>> code.counts, code.to_string(), code.area_px
    ((2, 2), '22', 2)
    >>> bool((RunLengths.from_string('22', height=2, width=2).to_mask() == mask).all())
    True
    """

    height: int
    width: int
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.height < 0 or self.width < 0:
            raise DamagedInput(f"run-length mask: expected a size of 0 or more, found {self.height}×{self.width}.")
        if any(count < 0 for count in self.counts):
            raise DamagedInput("run-length mask: expected counts of 0 or more, found a negative one.")
        if sum(self.counts) != self.height * self.width:
            raise DamagedInput(
                f"run-length mask: expected counts that add up to {self.height}×{self.width} = "
                f"{self.height * self.width} pixels, found {sum(self.counts)}; check the size beside the counts."
            )

    @classmethod
    def from_mask(cls, mask: NDArray[np.bool_]) -> RunLengths:
        """Encode a bool (H, W) array."""
        flat = np.asarray(mask, dtype=bool).ravel(order="F")
        edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
        bounds = np.concatenate(([0], edges, [flat.size]))
        counts = np.diff(bounds).tolist()
        if flat.size and flat[0]:
            counts.insert(0, 0)
        return cls(mask.shape[0], mask.shape[1], tuple(counts))

    def to_mask(self) -> NDArray[np.bool_]:
        """Decode to a bool (H, W) array."""
        values = np.arange(len(self.counts)) % 2 == 1
        flat = np.repeat(values, self.counts)
        return np.ascontiguousarray(flat.reshape((self.height, self.width), order="F"))

    @property
    def area_px(self) -> int:
        return sum(self.counts[1::2])

    @classmethod
    def from_string(cls, text: str | bytes, *, height: int, width: int) -> RunLengths:
        """Decode the compressed form."""
        damaged = DamagedInput(
            "run-length mask: expected COCO's compressed counts, found text that is not; export it anew."
        )
        try:
            raw = text.encode("ascii") if isinstance(text, str) else bytes(text)
        except UnicodeEncodeError:
            raise damaged from None
        groups = np.frombuffer(raw, dtype=np.uint8).astype(np.int64) - 48
        if groups.size == 0:
            return cls(height, width, ())
        ends = np.flatnonzero((groups & 0x20) == 0)
        if groups.min() < 0 or groups.max() > 0x3F or ends.size == 0 or ends[-1] != groups.size - 1:
            raise damaged
        starts = np.concatenate(([0], ends[:-1] + 1))
        lengths = ends - starts + 1
        if lengths.max() > _MAX_GROUPS:
            raise damaged
        place = np.arange(groups.size) - np.repeat(starts, lengths)
        values = np.add.reduceat((groups & 0x1F) << (_GROUP_BITS * place), starts)
        negative = (groups[ends] & 0x10) != 0
        values -= np.where(negative, np.int64(1) << (_GROUP_BITS * lengths), 0)
        # From the fourth on, each count was stored as the difference from the one two before it.
        values[1::2] = np.cumsum(values[1::2])
        values[2::2] = np.cumsum(values[2::2])
        return cls(height, width, tuple(values.tolist()))

    def to_string(self) -> str:
        """Encode to the compressed form."""
        values = np.array(self.counts, dtype=np.int64)
        values[3:] -= np.array(self.counts[1:-2], dtype=np.int64)
        out = np.zeros((values.size, _MAX_GROUPS), dtype=np.uint8)
        used = np.zeros((values.size, _MAX_GROUPS), dtype=bool)
        alive = np.ones(values.size, dtype=bool)
        for place in range(_MAX_GROUPS):
            group = values & 0x1F
            values >>= _GROUP_BITS
            more = np.where((group & 0x10) != 0, values != -1, values != 0)
            out[:, place] = (group | np.where(more, 0x20, 0)) + 48
            used[:, place] = alive
            alive &= more
            if not alive.any():
                break
        return out[used].tobytes().decode("ascii")


def mask_from_polygons(polygons: Sequence[Sequence[float]], *, height: int, width: int) -> NDArray[np.bool_]:
    """Union of polygons [x0, y0, x1, y1, …] (pixels, corners of pixels at whole numbers) as a bool (H, W) array."""
    mask = np.zeros((height, width), dtype=bool)
    for polygon in polygons:
        mask |= _rasterise(np.asarray(polygon, dtype=np.float64).reshape(-1, 2), height, width)
    return mask


def _rasterise(points: NDArray[np.float64], height: int, width: int) -> NDArray[np.bool_]:
    # Coordinates far outside would make the walk along the edge as long as they are large.
    far = 4.0 * max(height, width, 1)
    corners = np.trunc(_POLYGON_SCALE * np.clip(points, -far, far) + 0.5).astype(np.int64)
    u_parts, v_parts = [], []
    for (x0, y0), (x1, y1) in zip(corners.tolist(), np.roll(corners, -1, axis=0).tolist(), strict=True):
        dx, dy = abs(x1 - x0), abs(y1 - y0)
        along_x = dx >= dy
        flip = x0 > x1 if along_x else y0 > y1
        if flip:
            x0, x1, y0, y1 = x1, x0, y1, y0
        steps = np.arange(max(dx, dy) + 1)
        if flip:
            steps = steps[::-1]
        if dx == 0 and dy == 0:
            u, v = np.array([x0]), np.array([y0])
        elif along_x:
            u, v = steps + x0, np.trunc(y0 + (y1 - y0) / dx * steps + 0.5).astype(np.int64)
        else:
            u, v = np.trunc(x0 + (x1 - x0) / dy * steps + 0.5).astype(np.int64), steps + y0
        u_parts.append(u)
        v_parts.append(v)
    u, v = np.concatenate(u_parts), np.concatenate(v_parts)
    # Where the outline crosses the centre line of a pixel column, everything below changes sides.
    moved = np.flatnonzero(u[1:] != u[:-1]) + 1
    column = (np.where(u[moved] < u[moved - 1], u[moved], u[moved] - 1) + 0.5) / _POLYGON_SCALE - 0.5
    row = (np.minimum(v[moved], v[moved - 1]) + 0.5) / _POLYGON_SCALE - 0.5
    kept = (np.floor(column) == column) & (column >= 0) & (column <= width - 1)
    rows = np.ceil(np.clip(row[kept], 0, height)).astype(np.int64)
    toggles = np.bincount(column[kept].astype(np.int64) * height + rows, minlength=height * width + 1)
    inside = np.cumsum(toggles[: height * width]) % 2 == 1
    return np.ascontiguousarray(inside.reshape((height, width), order="F"))
