"""Further labels from masks, as SUN-SEG has them (Ji et al. 2022, section 3.2): boundary, scribble, polygon and box.

The paper made scribbles and polygons by hand or by an unpublished script; these are made by definition, and each from a
seed of its own (global seed, clip and frame name), so that neither order nor number of processes changes them.
- boundary: where the gradient of the mask is not zero.
- scribble: a random straight line or parabola inside the foreground (255) and one inside the background (128).
- polygon: Douglas-Peucker, circumscribed (contains the mask) or inscribed (is contained). The contour is first moved
  out or in by one pixel more than the tolerance, so that simplification cannot cross the true outline.
- box: the tight box [x, y, width, height].
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

__all__ = ["Polygon", "boundary", "frame_seed", "polygon", "scribble", "tight_box"]

Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
FOREGROUND, BACKGROUND = 255, 128
_TRIES = 60


@dataclass(frozen=True)
class Polygon:
    """Corners (x, y) of each part, in pixels (they may lie outside the image), and the filled image (0 and 255)."""

    kind: str
    parts: tuple[NDArray[np.int32], ...]
    filled: Bytes


def frame_seed(seed: int, *names: str) -> np.random.Generator:
    """A generator that depends on the seed and the names alone.

    >>> frame_seed(1, "case1", "7").integers(10**6) == frame_seed(1, "case1", "7").integers(10**6)
    np.True_
    """
    digest = hashlib.sha256("\0".join((str(seed), *names)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def boundary(mask: Mask) -> Bytes:
    """0 and 255: pixels where the gradient of the mask, bool (H, W), is not zero.

    >>> boundary(np.array([[0, 0, 1, 1, 1]] * 2, bool)).tolist()[0]
    [0, 255, 255, 0, 0]
    """
    edge = np.zeros(mask.shape, bool)
    for axis in (0, 1):
        change = np.diff(mask.astype(np.int8), axis=axis) != 0
        first = [slice(None)] * 2
        second = [slice(None)] * 2
        first[axis], second[axis] = slice(None, -1), slice(1, None)
        edge[tuple(first)] |= change
        edge[tuple(second)] |= change
    return edge.astype(np.uint8) * np.uint8(255)


def tight_box(mask: Mask) -> tuple[int, int, int, int] | None:
    """[x, y, width, height] of the smallest box around the mask, or None when it is empty.

    >>> tight_box(np.pad(np.ones((2, 3), bool), 1))
    (1, 1, 3, 2)
    """
    if not mask.any():
        return None
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1] - columns[0] + 1), int(rows[-1] - rows[0] + 1)


def scribble(mask: Mask, rng: np.random.Generator) -> Bytes:
    """A curve in the foreground (255) and one in the background (128); 0 elsewhere."""
    image = np.zeros(mask.shape, np.uint8)
    thickness = max(1, round(float(np.hypot(*mask.shape)) * 0.003))
    for region, value in ((~mask, BACKGROUND), (mask, FOREGROUND)):
        if region.any():
            image[_curve(region, thickness, rng) & region] = value
    return image


def _curve(region: Mask, thickness: int, rng: np.random.Generator) -> Mask:
    """The longest of several random lines and parabolas that stay inside `region` with their whole width."""
    depth = ndimage.distance_transform_edt(np.pad(region, 1))[1:-1, 1:-1]
    inner = depth > thickness
    if not inner.any():
        inner = depth >= depth.max()
    rows, columns = np.nonzero(inner)
    best, length = None, -1.0
    steps = np.linspace(0.0, 1.0, 128)
    for _ in range(_TRIES):
        picks = rng.integers(0, len(rows), 3)
        points = np.stack([columns[picks], rows[picks]], axis=1).astype(float)
        if rng.random() < 0.5:
            points[1] = (points[0] + points[2]) / 2  # a straight line
        t = steps[:, None]
        curve = (1 - t) ** 2 * points[0] + 2 * t * (1 - t) * points[1] + t**2 * points[2]
        at = np.rint(curve).astype(int)
        if inner[at[:, 1], at[:, 0]].all():
            extent = float(np.hypot(*np.diff(curve, axis=0).T).sum())
            if extent > length:
                best, length = at, extent
    if best is None:
        y, x = np.unravel_index(int(depth.argmax()), depth.shape)
        best = np.array([[x, y], [x, y]])
    canvas = np.zeros(region.shape, np.uint8)
    cv2.polylines(canvas, [best.astype(np.int32)], isClosed=False, color=1, thickness=thickness)
    return canvas > 0


def polygon(mask: Mask, kind: Literal["circumscribed", "inscribed"], tolerance: float = 0.008) -> Polygon:
    """Simplify the outline of each connected part by Douglas-Peucker; `tolerance` is a share of its perimeter."""
    parts: list[NDArray[np.int32]] = []
    count, labels = cv2.connectedComponents(mask.astype(np.uint8), connectivity=8)
    for label in range(1, count):
        parts += _simplify(labels == label, kind, tolerance)
    return Polygon(kind, tuple(parts), _fill(parts, mask.shape))


def _fill(parts: list[NDArray[np.int32]], shape: tuple[int, ...]) -> Bytes:
    filled = np.zeros(shape, np.uint8)
    for part in parts:  # one by one: together, OpenCV would leave out where two of them overlap
        cv2.fillPoly(filled, [part], 255)
    return filled


def _simplify(part: Mask, kind: str, tolerance: float) -> list[NDArray[np.int32]]:
    contours, _ = cv2.findContours(part.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    outline = max(contours, key=len)
    epsilon = max(1.0, tolerance * cv2.arcLength(outline, True))
    solid = ndimage.binary_fill_holes(part) if kind == "circumscribed" else part
    while True:
        margin = int(np.ceil(epsilon)) + 1
        room = margin + 2
        padded = np.pad(solid, room)
        # Room for the margin: outwards the shape may leave the image, inwards the image's edge is not an outline.
        distance = ndimage.distance_transform_edt(~padded if kind == "circumscribed" else padded)
        moved = distance <= margin if kind == "circumscribed" else distance > margin
        found, _ = cv2.findContours(moved.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        shapes = [cv2.approxPolyDP(c, epsilon, True)[:, 0] - room for c in found]
        shapes = [shape.astype(np.int32) for shape in shapes if len(shape) >= 3]
        if shapes and _holds(shapes, part, kind):
            return shapes
        if epsilon <= 0.25:
            # Too small to simplify: the outline itself encloses exactly the part (without holes).
            return [outline[:, 0].astype(np.int32)]
        epsilon /= 2


def _holds(shapes: list[NDArray[np.int32]], part: Mask, kind: str) -> bool:
    filled = _fill(shapes, part.shape) > 0
    return bool((part <= filled).all() if kind == "circumscribed" else (filled <= part).all())
