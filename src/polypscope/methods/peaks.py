"""From an energy map to locations."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["maxima"]


def maxima(energy: NDArray[np.float32], apart_px: int, most: int, least: float) -> list[tuple[int, int, float]]:
    """(x, y, energy) of the highest local maxima above `least`, at least `apart_px` from one another, best first."""
    size = 2 * apart_px + 1
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size))
    top = (energy >= cv2.dilate(energy, disc)) & (energy > least)
    found: list[tuple[int, int, float]] = []
    rows, columns = np.nonzero(top)
    for i in np.argsort(-energy[rows, columns], kind="stable"):
        x, y = int(columns[i]), int(rows[i])
        if all((x - a) ** 2 + (y - b) ** 2 >= apart_px**2 for a, b, _ in found):  # a plateau has many equal pixels
            found.append((x, y, float(energy[y, x])))
            if len(found) == most:
                break
    return found
