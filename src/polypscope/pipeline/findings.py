"""What the pipeline knows of one frame, in the pixels of the working image, and its exact form as one line of JSON.

Everything after `see` works on these records alone. They are rounded when they are made, so a run that is read back
from its journal takes exactly the decisions of the run that wrote it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polypscope.io.rle import RunLengths
from polypscope.records import BinaryMask, Box, Detection, SizeEstimate

__all__ = ["Findings", "Found", "Working", "rounded"]


def rounded(value: float, digits: int = 4) -> float:
    """A plain float with few digits: short in the journal and equal after reading back."""
    return round(float(value), digits)


@dataclass(frozen=True, slots=True)
class Working:
    """The small image that every step works on, and its relation to the frames of the source.

    >>> Working.of((1080, 1920), 384).shape
    (384, 683)
    """

    frame_shape: tuple[int, int]
    shape: tuple[int, int]

    @classmethod
    def of(cls, frame_shape: tuple[int, int], short_side_px: int) -> Working:
        """The working image of frames of this (height, width): its short side has `short_side_px`, never enlarged."""
        scale = min(1.0, short_side_px / min(frame_shape))
        height, width = (max(1, round(side * scale)) for side in frame_shape)
        return cls((int(frame_shape[0]), int(frame_shape[1])), (height, width))

    @property
    def scale_xy(self) -> tuple[float, float]:
        """Frame pixels for one working pixel, along x and y."""
        return self.frame_shape[1] / self.shape[1], self.frame_shape[0] / self.shape[0]

    def to_frame(self, x: float, y: float) -> tuple[float, float]:
        """A point of the working image in frame pixels (pixel centres at whole numbers)."""
        sx, sy = self.scale_xy
        return (x + 0.5) * sx - 0.5, (y + 0.5) * sy - 0.5

    def from_frame(self, x: float, y: float) -> tuple[float, float]:
        """A point in frame pixels in those of the working image.

        >>> Working.of((1080, 1920), 384).from_frame(*Working.of((1080, 1920), 384).to_frame(10, 20))
        (10.0, 20.0)
        """
        sx, sy = self.scale_xy
        return (x + 0.5) / sx - 0.5, (y + 0.5) / sy - 0.5

    def box_to_frame(self, box: Box) -> Box:
        """A box of the working image in frame pixels (edges, so without the half pixel of centres)."""
        sx, sy = self.scale_xy
        return Box(box.x * sx, box.y * sy, box.width * sx, box.height * sy)

    def mask_to_frame(self, mask: BinaryMask, box: Box) -> RunLengths:
        """The mask at frame size, smooth at its edge, as run lengths; only the part inside `box` is enlarged."""
        import cv2

        height, width = self.frame_shape
        if self.shape == self.frame_shape:
            return RunLengths.from_mask(mask.values)
        sx, sy = self.scale_xy
        pad = 2
        x0, y0 = max(int(box.x) - pad, 0), max(int(box.y) - pad, 0)
        x1 = min(int(np.ceil(box.x + box.width)) + pad, self.shape[1])
        y1 = min(int(np.ceil(box.y + box.height)) + pad, self.shape[0])
        # The part is enlarged by an affine map whose pixel centres are those of the whole image.
        left, top = round(x0 * sx), round(y0 * sy)
        right, bottom = min(round(x1 * sx), width), min(round(y1 * sy), height)
        part = mask.values[y0:y1, x0:x1].astype(np.float32)
        matrix = np.array(
            [[sx, 0, (x0 + 0.5) * sx - 0.5 - left], [0, sy, (y0 + 0.5) * sy - 0.5 - top]],
            np.float64,
        )
        large = cv2.warpAffine(part, matrix, (right - left, bottom - top), flags=cv2.INTER_LINEAR) >= 0.5
        return _placed(large, left, top, height, width)


def _placed(part: NDArray[np.bool_], left: int, top: int, height: int, width: int) -> RunLengths:
    """Run lengths of `part` inside an empty image, without making that image."""
    rows, columns = part.shape
    flat = np.zeros((columns, rows + 2), np.int8)
    flat[:, 1:-1] = part.T
    change = np.diff(flat, axis=1)
    column, start = np.nonzero(change == 1)
    _, stop = np.nonzero(change == -1)
    if column.size == 0:
        return RunLengths(height, width, (height * width,))
    begin = (left + column) * height + top + start
    end = (left + column) * height + top + stop
    # Runs that meet across a column edge are one run.
    joined = np.flatnonzero(begin[1:] == end[:-1])
    begin, end = np.delete(begin, joined + 1), np.delete(end, joined)
    bounds = np.empty(2 * begin.size + 2, np.int64)
    bounds[0], bounds[-1] = 0, height * width
    bounds[1:-1:2], bounds[2:-1:2] = begin, end
    counts = np.diff(bounds).tolist()
    if counts[-1] == 0:
        counts.pop()
    return RunLengths(height, width, tuple(counts))


@dataclass(frozen=True, eq=False, slots=True)
class Found:
    """One component of a frame's mask: where it is, what it looks like and, where that was possible, its size.

    detection: in working pixels, with box, score and mask. appearance: colour histogram inside the mask.
    truncated: the mask reaches the edge of the picture. size: what this frame alone says, None if not measured.
    why: the reason when `size` is None. distance_mm: median depth inside the mask, None without a depth map.
    """

    detection: Detection
    appearance: tuple[int, ...]
    truncated: bool
    size: SizeEstimate | None = None
    why: str = ""
    distance_mm: float | None = None
    extra: dict[str, float] | None = None

    @property
    def box(self) -> Box:
        """The detection's box, which `locate` always gives."""
        assert self.detection.box is not None
        return self.detection.box

    @property
    def mask(self) -> BinaryMask:
        """The detection's mask, which `locate` always gives."""
        assert self.detection.mask is not None
        return self.detection.mask

    @property
    def score(self) -> float:
        """The detection's score, which `locate` always gives."""
        assert self.detection.score is not None
        return self.detection.score


@dataclass(frozen=True, eq=False, slots=True)
class Findings:
    """All that one frame contributes.

    flags: why the frame was left out or trusted less ("frozen", "dark", "blurred", "outside", "damaged").
    cut: a new scene begins here. motion_xy: how far the whole picture moved since the frame before, working pixels.
    sharpness: relative to the video so far, about 1. found: components, best score first.
    """

    index: int
    pts_s: float
    flags: tuple[str, ...]
    cut: bool
    motion_xy: tuple[float, float]
    sharpness: float
    found: tuple[Found, ...]

    def to_line(self) -> str:
        """One line of JSON that `from_line` reads back equal."""
        return json.dumps(
            {
                "i": self.index,
                "t": self.pts_s,
                "f": list(self.flags),
                "c": int(self.cut),
                "m": list(self.motion_xy),
                "q": self.sharpness,
                "d": [_found_to_dict(found) for found in self.found],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_line(cls, line: str, shape: tuple[int, int]) -> Findings:
        """Read what `to_line` wrote; `shape` is that of the working image."""
        data = json.loads(line)
        return cls(
            data["i"],
            data["t"],
            tuple(data["f"]),
            bool(data["c"]),
            (data["m"][0], data["m"][1]),
            data["q"],
            tuple(_found_from_dict(item, shape) for item in data["d"]),
        )


def _found_to_dict(found: Found) -> dict[str, Any]:
    box = found.box
    data: dict[str, Any] = {
        "p": list(found.detection.point_xy),
        "s": found.score,
        "b": [box.x, box.y, box.width, box.height],
        "m": RunLengths.from_mask(found.mask.values).to_string(),
        "a": list(found.appearance),
        "e": int(found.truncated),
    }
    if found.size is not None:
        size = found.size
        interval = None if size.interval_mm is None else list(size.interval_mm)
        data["z"] = [size.long_mm, size.short_mm, interval, size.level, size.method, list(size.flags)]
    if found.why:
        data["w"] = found.why
    if found.distance_mm is not None:
        data["r"] = found.distance_mm
    if found.extra is not None:
        data["x"] = found.extra
    return data


def _found_from_dict(data: dict[str, Any], shape: tuple[int, int]) -> Found:
    size = None
    if "z" in data:
        long, short, interval, level, method, flags = data["z"]
        size = SizeEstimate(long, short, None if interval is None else tuple(interval), level, method, tuple(flags))
    mask = RunLengths.from_string(data["m"], height=shape[0], width=shape[1]).to_mask()
    return Found(
        Detection((data["p"][0], data["p"][1]), data["s"], Box(*data["b"]), BinaryMask(mask)),
        tuple(data["a"]),
        bool(data["e"]),
        size,
        data.get("w", ""),
        data.get("r"),
        data.get("x"),
    )
