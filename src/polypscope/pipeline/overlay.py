"""Markers on the picture: outline, number, size and confidence of each polyp; every other pixel stays as it was."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope import DISCLAIMER
from polypscope.pipeline.engine import Told
from polypscope.pipeline.findings import Working
from polypscope.pipeline.follow import Shown
from polypscope.pipeline.locate import outline
from polypscope.records import Box, SizeEstimate

__all__ = ["COLOURS", "colour_of", "draw", "size_text"]

# Okabe and Ito's palette without black and the orange of mucosa: distinct for colour-blind eyes too.
COLOURS = ((86, 180, 233), (240, 228, 66), (0, 200, 150), (204, 121, 200), (255, 255, 255), (120, 150, 255))
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def colour_of(polyp: int) -> tuple[int, int, int]:
    """RGB of a polyp's markers."""
    return COLOURS[(polyp - 1) % len(COLOURS)]


def size_text(size: SizeEstimate | None) -> str:
    """A size for a small label.

    >>> size_text(SizeEstimate(6.24, 5.0, (5.1, 7.6), 0.9, "caliper"))
    '6.2 mm (5.1-7.6)'
    >>> size_text(SizeEstimate(6.24, 5.0, (5.1, 7.6), 0.9, "caliper", ("truncated",)))
    'at least 6.2 mm'
    >>> size_text(None)
    ''
    """
    if size is None:
        return ""
    if size.partial:
        return f"at least {size.long_mm:.1f} mm"
    interval = "" if size.interval_mm is None else f" ({size.interval_mm[0]:.1f}-{size.interval_mm[1]:.1f})"
    return f"{size.long_mm:.1f} mm{interval}"


def draw(rgb: NDArray[np.uint8], told: Told, working: Working) -> NDArray[np.uint8]:
    """A copy of a frame, uint8 (H, W, 3), with the markers; the frame itself when there is nothing to mark."""
    if not told.shown:
        return rgb
    picture = np.array(rgb)
    unit = max(1.0, picture.shape[0] / 480)
    for polyp in told.shown:
        _mark(picture, polyp, told.sizes.get(polyp.id), working, unit)
    height = picture.shape[0]
    _text(picture, DISCLAIMER, (round(6 * unit), height - round(6 * unit)), 0.36 * unit, (230, 230, 230))
    return picture


def _mark(picture: NDArray[np.uint8], polyp: Shown, size: SizeEstimate | None, working: Working, unit: float) -> None:
    colour = colour_of(polyp.id)
    box = working.box_to_frame(polyp.box)
    thick = max(1, round(1.5 * unit))
    if polyp.found is not None:
        shift = 4  # sub-pixel corners: the outline does not jump with the working grid
        for contour in outline(polyp.found.mask):
            points = _smooth(contour)
            points = np.stack(working.to_frame(points[:, 0], points[:, 1]), axis=1)  # type: ignore[arg-type]
            fixed = np.rint(points * (1 << shift)).astype(np.int32)[:, None]
            cv2.polylines(picture, [fixed], True, (0, 0, 0), thick + 2, cv2.LINE_AA, shift)
            cv2.polylines(picture, [fixed], True, colour, thick, cv2.LINE_AA, shift)
    else:
        _corners(picture, box, colour, thick)
        return
    label = "  ".join(part for part in (f"#{polyp.id}", size_text(size), f"{round(100 * polyp.confidence)} %") if part)
    _label(picture, label, box, colour, unit)


def _smooth(contour: NDArray[np.int32]) -> NDArray[np.float64]:
    points = contour.astype(np.float64)
    if len(points) < 6:
        return points
    return 0.25 * np.roll(points, 1, 0) + 0.5 * points + 0.25 * np.roll(points, -1, 0)


def _corners(picture: NDArray[np.uint8], box: Box, colour: tuple[int, int, int], thick: int) -> None:
    """Only the corners: this polyp is expected here, but was not seen in this very frame."""
    x0, y0, x1, y1 = (round(v) for v in (box.x, box.y, box.x + box.width, box.y + box.height))
    arm = max(4, round(0.2 * min(box.width, box.height)))
    for x, y, dx, dy in ((x0, y0, arm, arm), (x1, y0, -arm, arm), (x0, y1, arm, -arm), (x1, y1, -arm, -arm)):
        cv2.line(picture, (x, y), (x + dx, y), colour, thick, cv2.LINE_AA)
        cv2.line(picture, (x, y), (x, y + dy), colour, thick, cv2.LINE_AA)


def _label(picture: NDArray[np.uint8], text: str, box: Box, colour: tuple[int, int, int], unit: float) -> None:
    scale, pad = 0.45 * unit, round(4 * unit)
    (width, height), base = cv2.getTextSize(text, _FONT, scale, max(1, round(unit)))
    x = round(min(max(box.x, 0), picture.shape[1] - width - 2 * pad))
    top = round(box.y - height - base - 3 * pad)
    if top < 0:
        top = round(min(box.y + box.height + pad, picture.shape[0] - height - base - 2 * pad))
    x, top = max(x, 0), max(top, 0)
    bottom, right = top + height + base + pad, x + width + 2 * pad
    patch = picture[top:bottom, x:right]
    patch[:] = (patch * 0.3).astype(np.uint8)
    cv2.rectangle(picture, (x, top), (x + max(2, pad // 2), bottom - 1), colour, -1)
    cv2.putText(
        picture, text, (x + pad + 1, top + height + pad // 2), _FONT, scale, colour, max(1, round(unit)), cv2.LINE_AA
    )


def _text(
    picture: NDArray[np.uint8], text: str, at: tuple[int, int], scale: float, colour: tuple[int, int, int]
) -> None:
    # The shadow has the same thickness: another one would set the letters at other places.
    thick = max(1, round(scale))
    cv2.putText(picture, text, (at[0] + 1, at[1] + 1), _FONT, scale, (0, 0, 0), thick, cv2.LINE_AA)
    cv2.putText(picture, text, at, _FONT, scale, colour, thick, cv2.LINE_AA)
