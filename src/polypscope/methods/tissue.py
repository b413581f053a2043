"""What of a frame is mucosa: the view inside the black border, without sub-images, and with highlights painted over.

All of it works on a frame of standard size (`standard_size`), so that the work per frame is constant and every length
below means the same share of the picture whatever the camera.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["find_highlights", "find_view", "grow", "paint_over", "shrink", "standard_size"]

Mask = NDArray[np.bool_]
Rgb = NDArray[np.uint8]


def standard_size(rgb: Rgb, side_px: int) -> Rgb:
    """The frame with as many pixels as a square of `side_px`, its shape kept; averaged, so that nothing aliases."""
    height, width = rgb.shape[:2]
    scale = side_px / np.sqrt(height * width)
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    out: Rgb = np.asarray(cv2.resize(rgb, size, interpolation=method), dtype=np.uint8)
    return out


def grow(mask: Mask, radius_px: int) -> Mask:
    """Dilation by a disc. What lies outside the picture counts as empty: OpenCV's default would do the same for a
    dilation, but its inverse (`shrink`) must not take the edge of the picture for mucosa."""
    out = cv2.dilate(mask.astype(np.uint8), _disc(radius_px), borderType=cv2.BORDER_CONSTANT, borderValue=(0,))
    return np.asarray(out > 0)


def shrink(mask: Mask, radius_px: int) -> Mask:
    """Erosion by a disc; what lies outside the picture counts as empty."""
    out = cv2.erode(mask.astype(np.uint8), _disc(radius_px), borderType=cv2.BORDER_CONSTANT, borderValue=(0,))
    return np.asarray(out > 0)


def find_view(rgb: Rgb, *, dark: int = 22, margin_px: int = 3) -> Mask:
    """Where the endoscope sees: bool (H, W), false in the black border, in corners and in drawn sub-images.

    A dark pixel belongs to the border only if its region touches the edge of the picture, for the lumen is dark too.
    Blood and mucosa are never greener or bluer than red by much; what is, was drawn there by the processor.
    """
    brightest = rgb.max(axis=2)
    red = rgb[..., 0].astype(np.int16)
    other = rgb[..., 1:].max(axis=2).astype(np.int16)
    drawn = grow(cv2.erode((other > red + 30).astype(np.uint8), _disc(1)) > 0, 2)
    black = (brightest < dark).astype(np.uint8)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(black, connectivity=4)
    height, width = black.shape
    x, y, w, h = (stats[:, k] for k in range(4))
    outer = (x == 0) | (y == 0) | (x + w == width) | (y + h == height)
    outer[0] = False  # label 0 is what is not black
    view = ~(outer[labels] | drawn)
    # A drawn box has dark insides and letters: only the largest connected part is the view, holes filled by size.
    count, labels, stats, _ = cv2.connectedComponentsWithStats(view.astype(np.uint8), connectivity=4)
    if count > 2:
        view = labels == 1 + int(np.argmax(stats[1:, 4]))
    return shrink(view, margin_px) if margin_px else view


def find_highlights(rgb: Rgb, *, margin_px: int = 2) -> Mask:
    """Specular highlights, bool (H, W), with a margin.

    A highlight is white light thrown back: bright with little saturation, or much brighter than the median of its
    surroundings in the channel that mucosa reflects least (after Arnold et al. 2010).
    """
    high = rgb.max(axis=2).astype(np.int16)
    low = rgb.min(axis=2).astype(np.int16)
    absolute = (high > 200) & (low * 100 > high * 72)
    around = cv2.medianBlur(np.ascontiguousarray(rgb[..., 1]), 21).astype(np.int16)
    green = rgb[..., 1].astype(np.int16)
    relative = (green > around + 28) & (green > around * 1.25) & (low * 100 > high * 50) & (high > 120)
    return grow(absolute | relative, margin_px)


def paint_over(rgb: Rgb, holes: Mask, *, radius_px: int = 3) -> Rgb:
    """The frame with `holes` filled from around them."""
    if not holes.any():
        return rgb
    out: Rgb = np.asarray(cv2.inpaint(rgb, holes.astype(np.uint8), radius_px, cv2.INPAINT_TELEA), dtype=np.uint8)
    return out


def _disc(radius_px: int) -> NDArray[np.uint8]:
    size = 2 * radius_px + 1
    return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size)), dtype=np.uint8)
