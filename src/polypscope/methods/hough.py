"""Circles and ellipses in a picture by the Hough transform, with a prior on their size.

An ellipse is a circle in a picture that was squeezed along one axis. So one transform serves all shapes: edge points
and their normals are squeezed, every edge point votes for the centres at all radii along its normal, to both sides
because a polyp may be brighter or darker than what lies behind it, and votes are counted at the centre's true place.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["Ellipse", "SizePrior", "find_edges", "find_ellipses", "hough_votes"]

CELL_PX = 2  # votes are counted in cells of so many pixels
ASPECT = 1.5
SHAPES: tuple[tuple[float, float], ...] = (
    (1.0, 0.0), (ASPECT, 0.0), (ASPECT, np.pi / 4), (ASPECT, np.pi / 2), (ASPECT, 3 * np.pi / 4),
)  # fmt: skip
"""Long by short axis, and the angle of the long axis to x in radians."""
RADII_PX = np.geomspace(8.0, 46.0, 18)


@dataclass(frozen=True)
class Ellipse:
    """Centre, radius of the circle of equal area, long by short axis and angle of the long axis, in pixels and radians.

    support: share of its outline that edges vouch for, times the prior of its size.
    """

    x: float
    y: float
    radius: float
    aspect: float
    angle: float
    support: float = 0.0

    def contains(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which points lie inside."""
        dx, dy = x - self.x, y - self.y
        along = dx * np.cos(self.angle) + dy * np.sin(self.angle)
        across = dy * np.cos(self.angle) - dx * np.sin(self.angle)
        root = np.sqrt(self.aspect)
        return np.asarray((along / root) ** 2 + (across * root) ** 2 <= self.radius**2)

    def scaled(self, factor: float) -> Ellipse:
        """The same in a picture `factor` times as large."""
        return Ellipse(
            (self.x + 0.5) * factor - 0.5, (self.y + 0.5) * factor - 0.5, self.radius * factor, self.aspect, self.angle,
            self.support,
        )  # fmt: skip

    def reach(self) -> float:
        """Half of the long axis."""
        return float(self.radius * np.sqrt(self.aspect))


@dataclass(frozen=True)
class SizePrior:
    """Logarithm of the radius of polyps: mean and standard deviation, of radii in pixels of the working picture."""

    mean: float
    deviation: float

    def __call__(self, radius: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weight of a radius, 1 at the commonest."""
        return np.asarray(np.exp(-(((np.log(radius) - self.mean) / self.deviation) ** 2) / 2))


def find_edges(grey: NDArray[np.uint8], allowed: NDArray[np.bool_], *, share: float = 0.12) -> NDArray[np.float64]:
    """Edge points and their unit normals, float64 (n, 4) as x, y, nx, ny.

    Canny's upper threshold is the gradient that `share` of the allowed pixels exceed, so that dull and crisp cameras
    give the same number of edges; but never less than what sensor noise makes.
    """
    smooth = cv2.GaussianBlur(grey, (0, 0), 1.6)
    gx = cv2.Sobel(smooth, cv2.CV_16S, 1, 0)
    gy = cv2.Sobel(smooth, cv2.CV_16S, 0, 1)
    size = np.hypot(gx.astype(np.float64), gy.astype(np.float64))
    if not allowed.any():
        return np.zeros((0, 4))
    high = max(24.0, float(np.quantile(size[allowed], 1 - share)))
    edges = (cv2.Canny(gx, gy, 0.5 * high, high, L2gradient=True) > 0) & allowed
    y, x = np.nonzero(edges)
    length = np.maximum(size[y, x], 1e-9)
    return np.stack([x.astype(np.float64), y.astype(np.float64), gx[y, x] / length, gy[y, x] / length], axis=1)


def hough_votes(edges: NDArray[np.float64], shape: tuple[int, int], aspect: float, angle: float) -> NDArray[np.float32]:
    """Votes for centres, float32 (radii, rows, columns) in cells, for ellipses of one shape."""
    root = np.sqrt(aspect)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    squeeze = turn.T @ np.diag([1 / root, root]) @ turn
    stretch = turn.T @ np.diag([root, 1 / root]) @ turn
    normals = edges[:, 2:] @ stretch  # normals go by the inverse transpose; both matrices are symmetric
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-9)
    rows, columns = (-(-side // CELL_PX) for side in shape)
    return _vote(edges[:, :2] @ squeeze, normals, stretch, RADII_PX, rows, columns)


@njit(cache=True, nogil=True)
def _vote(points, normals, back, radii, rows, columns):  # type: ignore[no-untyped-def]
    votes = np.zeros((len(radii), rows, columns), np.float32)
    for i in range(len(points)):
        for side in (-1.0, 1.0):
            for k in range(len(radii)):
                x = points[i, 0] + side * radii[k] * normals[i, 0]
                y = points[i, 1] + side * radii[k] * normals[i, 1]
                column = int(np.floor((back[0, 0] * x + back[0, 1] * y + 0.5) / CELL_PX))
                row = int(np.floor((back[1, 0] * x + back[1, 1] * y + 0.5) / CELL_PX))
                if 0 <= row < rows and 0 <= column < columns:
                    votes[k, row, column] += 1
    return votes


def find_ellipses(
    edges: NDArray[np.float64], shape: tuple[int, int], prior: SizePrior, *, most: int = 14
) -> list[Ellipse]:
    """The best supported ellipses of a picture of `shape` (height, width), best first, no two much alike."""
    weight = prior(RADII_PX) / (2 * np.pi * RADII_PX)
    candidates: list[Ellipse] = []
    for aspect, angle in SHAPES:
        votes = hough_votes(edges, shape, aspect, angle)
        for k, radius in enumerate(RADII_PX):
            # A hand-drawn circle misses its centre by a share of its radius: votes that near count together.
            sigma = max(0.8, 0.06 * radius / CELL_PX)
            plane = cv2.GaussianBlur(votes[k], (0, 0), sigma) * np.float32(2 * np.pi * sigma**2 * weight[k])
            tops = np.argwhere((plane >= cv2.dilate(plane, np.ones((5, 5), np.uint8))) & (plane > 0.02))
            best = sorted(((float(plane[y, x]), int(y), int(x)) for y, x in tops), reverse=True)[:most]
            candidates += [
                Ellipse((x + 0.5) * CELL_PX - 0.5, (y + 0.5) * CELL_PX - 0.5, float(radius), aspect, angle, support)
                for support, y, x in best
            ]
    candidates.sort(key=lambda e: (-e.support, e.x, e.y, e.radius, e.angle))
    kept: list[Ellipse] = []
    for one in candidates:
        if len(kept) == most:
            break
        if not any(_alike(one, other) for other in kept):
            kept.append(one)
    return kept


def _alike(one: Ellipse, other: Ellipse) -> bool:
    """Whether two ellipses are nearly the same region."""
    small, large = sorted((one.radius, other.radius))
    apart = np.hypot(one.x - other.x, one.y - other.y)
    return bool(apart < 0.4 * small and large < 1.6 * small)
