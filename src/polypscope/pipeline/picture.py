"""What of the screen is the endoscope's picture: field of view, on-screen text, inset pictures, frozen frames, cuts.

A recording shows more than the colon: a black border around the field of view, text, a second small picture, stretches
where the operator froze the image, cuts between scenes. The reader below looks at every frame at working size, keeps
running statistics of a few small arrays, and says which pixels belong to the picture and whether the frame is new.

- Field of view: pixels that are lit in a fair share of the frames; the largest piece, made convex (every field of view
  that video processors show is: full, circle, cut corners, octagon). Text and insets beside it are not connected to it.
- On-screen text and frozen insets inside it: pixels that stay the same while the rest of the picture moves.
- Insets that move: straight edges at one place that stay while everything else moves, forming a rectangle.
- Frozen: hardly any pixel differs from the frame before. Cut: the picture has nothing in common with the frame before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.pipeline.findings import rounded

__all__ = ["Picture", "PictureReader"]

_SMALL_WIDTH = 128
_STATS_EVERY = 5  # running statistics change slowly: not every frame need feed them
_LIT_GREY = 20
_LIT_SHARE = 0.15
_MEMORY = 400  # updates after which old statistics fade (2000 frames, 80 s at 25 fps)
_STATIC_AFTER = 24  # updates before "never moves" means something (about 5 s at 25 fps)


@dataclass(frozen=True, eq=False, slots=True)
class Picture:
    """One frame's verdict. area: bool (H, W), pixels that belong to the endoscope's picture; motion in pixels."""

    area: NDArray[np.bool_]
    flags: tuple[str, ...]
    frozen: bool
    cut: bool
    motion_xy: tuple[float, float]
    sharpness: float


class PictureReader:
    """Reads frames of one source in order; `state()` and `restore()` carry it over an interruption."""

    def __init__(self, shape: tuple[int, int]) -> None:
        height, width = shape
        self.shape = (height, width)
        self._small_size = (_SMALL_WIDTH, max(8, round(_SMALL_WIDTH * height / width)))
        self._window = cv2.createHanningWindow(self._small_size, cv2.CV_32F)
        # Everything that decides about later frames lives in this one dictionary.
        self._state: dict[str, NDArray[Any]] = {
            "count": np.zeros(2, np.int64),  # frames seen, updates of the statistics
            "previous": np.zeros((0, 0), np.float32),
            "lit": np.zeros(shape, np.float32),
            "mean": np.zeros(shape, np.float32),
            "square": np.zeros(shape, np.float32),
            "edge_x": np.zeros(shape, np.float32),
            "edge_y": np.zeros(shape, np.float32),
            "sharpness": np.zeros(1, np.float64),
            "area": np.ones(shape, bool),
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays that `restore` takes back."""
        return {key: value.copy() for key, value in self._state.items()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on where another reader of the same source stood."""
        self._state = {key: np.array(state[key]) for key in self._state}

    def look(self, rgb: NDArray[np.uint8]) -> Picture:
        """Judge the next frame: uint8 (H, W, 3) at working size."""
        s = self._state
        grey = cv2.cvtColor(np.ascontiguousarray(rgb), cv2.COLOR_RGB2GRAY)
        small = cv2.resize(grey, self._small_size, interpolation=cv2.INTER_AREA).astype(np.float32)
        first = s["previous"].size == 0
        frozen, cut, motion = False, False, (0.0, 0.0)
        if not first:
            frozen = _is_repeat(small, s["previous"])
            if not frozen:
                motion, agreement = self._motion(s["previous"], small)
                cut = _is_cut(small, s["previous"], agreement)
        number = int(s["count"][0])
        s["count"][0] += 1
        if not frozen:
            s["previous"] = small
            if number % _STATS_EVERY == 0 or first:
                self._learn(grey)
        area = s["area"]
        sharpness, flags = self._quality(grey, rgb, area, frozen)
        if frozen:
            flags = ("frozen", *flags)
        return Picture(area, flags, frozen, cut, motion, sharpness)

    def _motion(self, before: NDArray[np.float32], now: NDArray[np.float32]) -> tuple[tuple[float, float], float]:
        # OpenCV 5 multiplies the window into the arrays it is given: hand it copies.
        (dx, dy), response = cv2.phaseCorrelate(before.copy(), now.copy(), self._window)
        if response < 0.08 or max(abs(dx), abs(dy)) > 0.25 * _SMALL_WIDTH:
            return (0.0, 0.0), float(response)  # no common motion to be seen
        scale = self.shape[1] / self._small_size[0]
        return (rounded(dx * scale, 2), rounded(dy * scale, 2)), float(response)

    def _learn(self, grey: NDArray[np.uint8]) -> None:
        s = self._state
        s["count"][1] += 1
        updates = int(s["count"][1])
        weight = 1.0 / min(updates, _MEMORY)
        value = grey.astype(np.float32)
        smooth = cv2.GaussianBlur(value, (3, 3), 0)
        for key, sample in (
            ("lit", (grey > _LIT_GREY).astype(np.float32)),
            ("mean", value),
            ("square", value * value),
            ("edge_x", cv2.Sobel(smooth, cv2.CV_32F, 1, 0, ksize=3)),
            ("edge_y", cv2.Sobel(smooth, cv2.CV_32F, 0, 1, ksize=3)),
        ):
            cv2.accumulateWeighted(sample, s[key], weight)
        # Often at first, when every frame teaches something; rarely later.
        if updates <= 8 or updates % 8 == 0:
            area = _field_of_view(s["lit"])
            if updates >= _STATIC_AFTER:
                area &= ~_overlays(s["mean"], s["square"], s["edge_x"], s["edge_y"], area)
            s["area"] = area

    def _quality(
        self, grey: NDArray[np.uint8], rgb: NDArray[np.uint8], area: NDArray[np.bool_], frozen: bool
    ) -> tuple[float, tuple[str, ...]]:
        s = self._state
        inside = area[::4, ::4]
        if not inside.any():
            return 0.0, ("dark",)
        values = grey[::4, ::4][inside]
        brightness = float(values.mean())
        laplacian = cv2.Laplacian(cv2.GaussianBlur(grey, (3, 3), 0), cv2.CV_16S)
        detail = float(np.abs(laplacian[::2, ::2][area[::2, ::2]]).mean()) / max(brightness, 1.0)
        usual = float(s["sharpness"][0])
        relative = detail / usual if usual > 0 else 1.0
        if not frozen:
            # The usual sharpness of this recording: a slow mean that a blurred stretch hardly moves.
            s["sharpness"][0] = detail if usual == 0 else usual + 0.01 * (min(detail, 2 * usual) - usual)
        flags = []
        if brightness < 18:
            flags.append("dark")
        elif float((values > 245).mean()) > 0.5:
            flags.append("overexposed")
        red, green, blue = (float(rgb[::4, ::4, c][inside].mean()) for c in range(3))
        if brightness >= 18 and red < 0.95 * green and red < 1.15 * blue:
            flags.append("outside")  # mucosa and stool are redder than green under white light; rooms and screens not
        if relative < 0.35 and brightness >= 18:
            flags.append("blurred")
        return rounded(relative, 3), tuple(flags)


def _is_repeat(now: NDArray[np.float32], before: NDArray[np.float32]) -> bool:
    difference = np.abs(now - before)
    # A frozen image still flickers a little through the encoder; a moving one always changes somewhere.
    return float(difference.mean()) < 0.35 and float(np.partition(difference.ravel(), -16)[-16]) < 4.0


def _is_cut(now: NDArray[np.float32], before: NDArray[np.float32], agreement: float) -> bool:
    difference = float(np.abs(now - before).mean())
    spread = 0.5 * (float(now.std()) + float(before.std())) + 1.0
    if difference < 0.6 * spread or difference < 14:
        return False
    a, b = now - now.mean(), before - before.mean()
    correlation = float((a * b).sum() / (np.sqrt((a * a).sum() * (b * b).sum()) + 1e-6))
    return correlation < 0.25 and agreement < 0.12


def _field_of_view(lit: NDArray[np.float32]) -> NDArray[np.bool_]:
    bright = (lit >= _LIT_SHARE).astype(np.uint8)
    side = max(3, (min(lit.shape) // 40) | 1)
    opened = cv2.morphologyEx(bright, cv2.MORPH_OPEN, np.ones((side, side), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(opened, connectivity=4)
    if count < 2:
        return np.ones(lit.shape, bool)  # nothing lit yet: leave nothing out
    largest = 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))
    if stats[largest, cv2.CC_STAT_AREA] < 0.08 * lit.size:
        return np.ones(lit.shape, bool)
    contours, _ = cv2.findContours((labels == largest).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    area = np.zeros(lit.shape, np.uint8)
    cv2.fillConvexPoly(area, cv2.convexHull(np.concatenate(contours)), 1)
    # What is lit inside the hull but belongs to another piece (an inset in a cut corner) is not the picture.
    others = cv2.dilate(((opened > 0) & (labels != largest)).astype(np.uint8), np.ones((3, 3), np.uint8))
    return (area > 0) & (others == 0)


def _overlays(
    mean: NDArray[np.float32],
    square: NDArray[np.float32],
    edge_x: NDArray[np.float32],
    edge_y: NDArray[np.float32],
    area: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Pixels inside the field of view that are drawn over it: text, arrows, insets frozen or moving."""
    none = np.zeros(area.shape, bool)
    deviation = np.sqrt(np.maximum(square - mean * mean, 0))
    core = cv2.erode(area.astype(np.uint8), np.ones((9, 9), np.uint8)) > 0
    if not core.any() or float(np.median(deviation[core])) < 7:
        return none  # the camera hardly moved: still does not mean drawn
    edges = cv2.magnitude(edge_x, edge_y)
    still = (deviation < 4) & core
    # Still and with edges that survived averaging: drawn. A dark lumen or a burnt-out highlight has no such edges.
    drawn = cv2.dilate((still & (edges > 40)).astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
    drawn = cv2.morphologyEx(drawn.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((9, 9), np.uint8)) > 0
    drawn |= _insets(edge_x, edge_y, core)
    return drawn if drawn.sum() < 0.3 * area.sum() else none


def _insets(edge_x: NDArray[np.float32], edge_y: NDArray[np.float32], core: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rectangles whose straight sides stayed at one place while the picture moved."""
    height, width = core.shape
    least = max(12, min(height, width) // 8)
    found = np.zeros(core.shape, bool)
    upright = _runs((np.abs(edge_x) > 24) & core, least, axis=0)
    level = _runs((np.abs(edge_y) > 24) & core, least, axis=1)
    lines = cv2.morphologyEx((upright | level).astype(np.uint8), cv2.MORPH_CLOSE, np.ones((7, 7), np.uint8))
    count, _, stats, _ = cv2.connectedComponentsWithStats(lines, connectivity=8)
    for x, y, w, h, _ in stats[1:count]:
        if w < least or h < least or w * h > 0.25 * core.size:
            continue
        # At least three of the four sides of the bounding box must be there.
        band = 6
        sides = (
            upright[y : y + h, x : x + band].any(axis=1).mean(),
            upright[y : y + h, x + w - band : x + w].any(axis=1).mean(),
            level[y : y + band, x : x + w].any(axis=0).mean(),
            level[y + h - band : y + h, x : x + w].any(axis=0).mean(),
        )
        if sorted(sides)[1] > 0.6:
            found[y : y + h, x : x + w] = True
    return found


def _runs(values: NDArray[np.bool_], least: int, axis: int) -> NDArray[np.bool_]:
    """Keep only runs of at least `least` pixels along an axis."""
    kernel = np.ones((least, 1) if axis == 0 else (1, least), np.uint8)
    return cv2.morphologyEx(values.astype(np.uint8), cv2.MORPH_OPEN, kernel) > 0
