"""Where intensity has a valley: the dark rim at the foot of a protruding surface, which WM-DOVA votes with.

Creaseness is the multi-local one of López et al. (MLSEC-ST, 2000): the gradient is averaged in the structure tensor,
whose main direction, signed by the gradient, is a field of unit vectors; its divergence is high where they flee from a
line, which is a valley. It needs no threshold on intensity, so it also fires on noise: hence the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["Valleys", "find_valleys", "without_vessels"]

Plane = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Valleys:
    """depth: float32 (H, W) in [0, 1]. across_x, across_y: unit vector across the valley (its sign means nothing)."""

    depth: Plane
    across_x: Plane
    across_y: Plane


def without_vessels(rgb: NDArray[np.uint8], *, width_px: int = 7, contrast: float = 1.5, faint: float = 0.08) -> Plane:
    """Grey in [0, 255] with blood vessels filled up, float32 (H, W).

    Haemoglobin swallows green and blue but lets red pass, so a vessel is a thin valley in green and blue that red
    hardly shows, while the shadow at a polyp's foot is dark in all three. Where a thin valley is a vessel, it is
    raised to the level of its banks.
    """
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (width_px, width_px))
    planes = rgb.astype(np.float32)
    closed = cv2.morphologyEx(planes, cv2.MORPH_CLOSE, kernel)
    fill = closed - planes
    # Relative depths, because red is brighter than the others everywhere.
    relative = fill / np.maximum(closed, 1.0)
    in_green_blue = np.minimum(relative[..., 1], relative[..., 2])
    vessel = np.clip(1.0 - contrast * relative[..., 0] / np.maximum(in_green_blue, 1e-6), 0.0, 1.0)
    vessel *= in_green_blue > faint
    vessel = cv2.GaussianBlur(vessel, (0, 0), 1.0)
    filled = planes + vessel[..., None] * fill
    return np.asarray(filled @ np.array([0.299, 0.587, 0.114], np.float32), dtype=np.float32)


def find_valleys(
    grey: Plane, *, fine_px: float = 1.5, coarse_px: float = 3.0, confidence: float = 1.0, full_depth: float = 60.0
) -> Valleys:
    """Valleys of a grey picture, float32 (H, W) in [0, 255].

    Parameters
    ----------
    grey
        The picture.
    fine_px
        σ of the derivative.
    coarse_px
        σ of the average in the structure tensor.
    confidence
        Difference of the tensor's eigenvalues (in squared grey levels per pixel) at which a direction is believed.
    full_depth
        Morphological gradient, in grey levels, that counts as a full valley.
    """
    smooth = cv2.GaussianBlur(grey, (0, 0), fine_px)
    gx = cv2.Scharr(smooth, cv2.CV_32F, 1, 0, scale=1 / 32)
    gy = cv2.Scharr(smooth, cv2.CV_32F, 0, 1, scale=1 / 32)
    sxx = cv2.GaussianBlur(gx * gx, (0, 0), coarse_px)
    sxy = cv2.GaussianBlur(gx * gy, (0, 0), coarse_px)
    syy = cv2.GaussianBlur(gy * gy, (0, 0), coarse_px)
    difference = np.sqrt((sxx - syy) ** 2 + 4 * sxy * sxy)
    angle = 0.5 * np.arctan2(2 * sxy, sxx - syy)
    across_x, across_y = np.cos(angle), np.sin(angle)
    sign = np.sign(across_x * gx + across_y * gy)
    ux, uy = sign * across_x, sign * across_y
    # Divergence over the eight neighbours: a flow out of the pixel through its surroundings, in [-1, 1].
    flow = cv2.Sobel(ux, cv2.CV_32F, 1, 0, ksize=3, scale=1 / 8) + cv2.Sobel(uy, cv2.CV_32F, 0, 1, ksize=3, scale=1 / 8)
    creaseness = np.maximum(flow, 0.0)
    believed = 1.0 - np.exp(-((difference / confidence) ** 2) / 2)
    size = 2 * round(2 * fine_px) + 1
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size))
    gradient = np.minimum(cv2.morphologyEx(smooth, cv2.MORPH_GRADIENT, disc) / full_depth, 1.0)
    depth = np.asarray(creaseness * believed * gradient, dtype=np.float32)
    return Valleys(depth, across_x.astype(np.float32), across_y.astype(np.float32))
