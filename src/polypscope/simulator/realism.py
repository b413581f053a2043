"""What pictures look like in numbers, so that simulated frames can be held against real ones.

All statistics are taken inside the field of view of a picture whose long side is 320 pixels: mean colour, ratios
between channels, spread of grey, share of highlights (V > 240 and S < 70 of 255), share of darkness (grey < 40), and
the median and 95th percentile of the grey gradient (central differences, grey levels per pixel).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["ROWS", "Band", "field_of_view", "look_statistics", "summarise", "within"]

ROWS = (
    "red",
    "green",
    "blue",
    "red/green",
    "green/blue",
    "grey SD",
    "highlights %",
    "dark %",
    "gradient median",
    "gradient 95th",
)
SIDE_PX = 320


@dataclass(frozen=True)
class Band:
    """10th percentile, median and 90th percentile of one statistic over many frames."""

    low: float
    middle: float
    high: float


def to_side(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Resize so that the long side is 320 px."""
    scale = SIDE_PX / max(rgb.shape[:2])
    if scale == 1.0:
        return rgb
    size = (max(1, round(rgb.shape[1] * scale)), max(1, round(rgb.shape[0] * scale)))
    return cv2.resize(rgb, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)


def field_of_view(rgb: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Where a frame shows tissue, not the black surround: bool [H, W].

    The hull of the largest bright part, because the dark lumen belongs to the view; two pixels of its rim are left out.
    """
    bright = (rgb.max(2) > 32).astype(np.uint8)
    bright = cv2.morphologyEx(bright, cv2.MORPH_OPEN, np.ones((9, 9), np.uint8))
    count, parts, facts, _ = cv2.connectedComponentsWithStats(bright)
    if count < 2:
        return np.ones(rgb.shape[:2], bool)
    largest = (parts == 1 + int(np.argmax(facts[1:, cv2.CC_STAT_AREA]))).astype(np.uint8)
    contours, _ = cv2.findContours(largest, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    hull = cv2.convexHull(np.concatenate(contours))
    inside = np.zeros(rgb.shape[:2], np.uint8)
    cv2.fillConvexPoly(inside, hull, 1)
    inside = cv2.erode(np.pad(inside, 1), np.ones((5, 5), np.uint8))[1:-1, 1:-1]
    return inside > 0


def look_statistics(rgb: NDArray[np.uint8], inside: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    """The ten statistics [10] of one picture, in the order of `ROWS`."""
    small = to_side(rgb)
    if inside is None or small.shape[:2] != inside.shape:
        inside = field_of_view(small)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
    hsv = cv2.cvtColor(small, cv2.COLOR_RGB2HSV)
    red, green, blue = (float(small[..., k][inside].mean()) for k in range(3))
    dy, dx = np.gradient(grey)
    gradient = np.hypot(dx, dy)[inside]
    shine = (hsv[..., 2] > 240) & (hsv[..., 1] < 70)
    return np.array(
        [
            red,
            green,
            blue,
            red / max(green, 1e-6),
            green / max(blue, 1e-6),
            float(grey[inside].std()),
            100 * float(shine[inside].mean()),
            100 * float((grey[inside] < 40).mean()),
            float(np.median(gradient)),
            float(np.quantile(gradient, 0.95)),
        ]
    )


def summarise(statistics: Iterable[NDArray[np.float64]]) -> dict[str, Band]:
    """Bands over many frames, by row."""
    table = np.stack(list(statistics))
    low, middle, high = np.quantile(table, [0.1, 0.5, 0.9], axis=0)
    return {row: Band(float(low[i]), float(middle[i]), float(high[i])) for i, row in enumerate(ROWS)}


def within(simulated: dict[str, Band], real: dict[str, dict[str, Band]]) -> dict[str, list[str]]:
    """For each row, the real data sets whose 10th-90th percentile band holds the simulated median."""
    return {
        row: [name for name, bands in real.items() if bands[row].low <= simulated[row].middle <= bands[row].high]
        for row in ROWS
    }
