"""Edges vote for what they surround (Tajbakhsh et al., TMI 35, 2016): the map, and boxes from its contours.

An edge point votes in a cone around its normal, fading with distance. Votes are counted in four groups by the angle of
the normal, and the map is their product (as a geometric mean): a place is high only where edges of all orientations
surround it, which parallel folds never do and a round boundary does, even from one side of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numba import njit
from numpy.typing import NDArray

from polypscope.methods.peaks import maxima

__all__ = ["CELL_PX", "Candidate", "find_candidates", "group_votes", "vote_map"]

CELL_PX = 2  # votes are counted in cells of so many pixels
GROUPS = 4
FADE_PX = 16.0  # distance at which a vote is down to 1/e
REACH_PX = 56.0
WIDTH = 0.8  # cosine at the edge of the cone
FLOOR = 0.4  # votes that every group has, so that one missing side does not silence the others
FULL = 10.0  # geometric mean of votes that counts as full energy
CONTOUR = 0.65  # share of its maximum at which a candidate's contour runs


@dataclass(frozen=True)
class Candidate:
    """A maximum of the map, in pixels of the working picture: place, height, and the box of its contour."""

    x: float
    y: float
    height: float
    contour: tuple[float, float, float, float]
    """Left, top, right, bottom."""

    def radius(self) -> float:
        """Of a circle with as large a box."""
        left, top, right, bottom = self.contour
        return float(np.sqrt((right - left) * (bottom - top)) / 2)


def group_votes(edges: NDArray[np.float64], weight: NDArray[np.float32], shape: tuple[int, int]) -> NDArray[np.float32]:
    """Votes by group, float32 (GROUPS, rows, columns) in cells, of edges whose normals point to what they bound."""
    rows, columns = (-(-side // CELL_PX) for side in shape)
    turn = np.mod(np.arctan2(edges[:, 3], edges[:, 2]) / np.pi, 1.0)  # opposite sides are one group
    group = np.minimum((turn * GROUPS).astype(np.int64), GROUPS - 1)
    cells = edges.copy()
    cells[:, :2] = (edges[:, :2] + 0.5) / CELL_PX - 0.5
    return _vote(cells, weight.astype(np.float32), group, rows, columns, REACH_PX / CELL_PX, FADE_PX / CELL_PX, WIDTH)


@njit(cache=True, nogil=True)
def _vote(cells, weight, group, rows, columns, reach, fade, width):  # type: ignore[no-untyped-def]
    votes = np.zeros((GROUPS, rows, columns), np.float32)
    for i in range(len(cells)):
        x, y, nx, ny = cells[i]
        for row in range(max(0, int(y - reach)), min(rows, int(y + reach) + 2)):
            for column in range(max(0, int(x - reach)), min(columns, int(x + reach) + 2)):
                ahead = (column - x) * nx + (row - y) * ny
                if ahead <= 0:
                    continue
                distance = np.sqrt((column - x) ** 2 + (row - y) ** 2)
                if distance > reach or ahead < width * distance:
                    continue
                straight = ahead / distance
                votes[group[i], row, column] += weight[i] * np.exp(-distance / fade) * straight
    return votes


def vote_map(edges: NDArray[np.float64], weight: NDArray[np.float32], view: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The map in [0, 1], float32 (rows, columns) in cells; 0 where nobody votes and outside the view, bool (h, w)."""
    height, width = view.shape
    votes = group_votes(edges, weight, (height, width))
    mean = np.exp(np.log(votes + FLOOR).mean(axis=0)) - FLOOR
    smooth = cv2.GaussianBlur(mean.astype(np.float32), (0, 0), 1.5)
    seen = cv2.resize(view.astype(np.uint8), smooth.shape[::-1], interpolation=cv2.INTER_NEAREST)
    return np.asarray(np.clip(smooth / FULL, 0, 1) * seen, dtype=np.float32)


def find_candidates(energy: NDArray[np.float32], *, most: int = 6, least: float = 0.01) -> list[Candidate]:
    """The highest maxima of a vote map with the boxes of their contours, highest first."""
    out = []
    for x, y, height in maxima(energy, 5, most, least):
        above = (energy >= CONTOUR * height).astype(np.uint8)
        _, labels, stats, _ = cv2.connectedComponentsWithStats(above, connectivity=4)
        left, top, width, tall, _ = (int(v) for v in stats[labels[y, x]])
        box = (left * CELL_PX, top * CELL_PX, (left + width) * CELL_PX, (top + tall) * CELL_PX)
        place = [(v + 0.5) * CELL_PX - 0.5 for v in (x, y)]
        out.append(Candidate(place[0], place[1], height, tuple(v - 0.5 for v in box)))
    return out
