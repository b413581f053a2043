"""What the surroundings of an edge look like, seen along its normal (Tajbakhsh et al., TMI 35, 2016).

A patch around every edge point is sampled in the frame of its normal, so that a boundary looks the same wherever it
runs. Overlapping strips of the patch, laid at four angles, are averaged across and the averages go through a cosine
transform of which the lowest coefficients are kept. Averaging and transform are linear: they are one matrix.
"""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["CONTEXT", "DESCRIBED", "SIDE", "around", "context", "describe", "strips", "turned"]

SIDE = 16  # samples of a patch, along each side
STEP_PX = 1.8  # between two samples, in pixels of the working picture
ANGLES = (0.0, np.pi / 4, np.pi / 2, 3 * np.pi / 4)
BANDS = ((-8.0, 0.0), (-4.0, 4.0), (0.0, 8.0))
"""Strips, in samples from the middle: each half as wide as the patch, overlapping by half."""
WAVES = 5  # coefficients of a strip, beside its mean
DESCRIBED = 3 * len(ANGLES) * len(BANDS) * (WAVES + 1) + 4

_GRID = np.array([-24.0, -12.0, 0.0, 12.0, 24.0, 36.0])  # where context is looked at, along the normal
_ASIDE = np.array([-24.0, -12.0, 0.0, 12.0, 24.0])  # and across it
CONTEXT = len(_GRID) * len(_ASIDE)

Edges = NDArray[np.float64]
Values = NDArray[np.float32]


def turned(edges: Edges) -> Edges:
    """The same edge points, x, y, nx, ny, with the normal to the other side."""
    return np.asarray(edges * np.array([1.0, 1.0, -1.0, -1.0]))


def around(
    picture: NDArray[np.float32], edges: Edges, along: NDArray[np.float64], aside: NDArray[np.float64]
) -> Values:
    """`picture` (H, W, channels) at places around each edge point: float32 (n, aside, along, channels).

    along, aside: distances in pixels from the point, along the normal and across it. Beyond the picture its last
    pixels go on.
    """
    channels = picture.shape[2]
    if not len(edges):
        return np.zeros((0, len(aside), len(along), channels), np.float32)
    x, y, nx, ny = (edges[:, k, None, None] for k in range(4))
    u, v = along[None, None, :], aside[None, :, None]
    rows = [(x + u * nx - v * ny).reshape(len(edges), -1), (y + u * ny + v * nx).reshape(len(edges), -1)]
    parts = []
    for first in range(0, len(edges), 8000):  # OpenCV remaps to at most 32,767 rows
        part = [c[first : first + 8000].astype(np.float32) for c in rows]
        seen = cv2.remap(picture, part[0], part[1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        parts.append(seen.reshape(-1, len(aside), len(along), channels))
    return np.concatenate(parts)


@lru_cache(maxsize=1)
def strips() -> Values:
    """The matrix that takes a patch (SIDE², one channel) to the coefficients of its strips: float32 (SIDE², strips)."""
    middle = (SIDE - 1) / 2
    v, u = np.mgrid[:SIDE, :SIDE].reshape(2, -1) - middle
    columns = []
    for angle in ANGLES:
        along = u * np.cos(angle) + v * np.sin(angle)
        across = v * np.cos(angle) - u * np.sin(angle)
        for low, high in BANDS:
            # Corners that a turned strip does not reach belong to no strip.
            inside = (across > low) & (across < high) & (np.abs(along) < SIDE / 2)
            for wave in range(WAVES + 1):
                columns.append(inside * np.cos(np.pi * wave * (along + SIDE / 2) / SIDE) / inside.sum())
    return np.stack(columns, axis=1).astype(np.float32)


def describe(picture: NDArray[np.float32], edges: Edges) -> Values:
    """Numbers for the forest, float32 (n, DESCRIBED), of a picture (H, W, 3) in [0, 255] around each edge point.

    Coefficients are of the patch without its mean and over its contrast, so that the light matters little; mean colour
    and contrast come last.
    """
    reach = (np.arange(SIDE) - (SIDE - 1) / 2) * STEP_PX
    seen = around(picture, edges, reach, reach).reshape(len(edges), SIDE * SIDE, 3)
    patches = np.ascontiguousarray(seen.transpose(0, 2, 1))
    mean = patches.mean(axis=2)
    contrast = patches.mean(axis=1).std(axis=1) + 2.0  # in grey levels; sensor noise is not made a pattern
    matrix = strips()
    waves = (patches.reshape(-1, SIDE * SIDE) @ matrix).reshape(len(edges), 3, matrix.shape[1])
    waves = (waves - mean[..., None] * matrix.sum(axis=0)) / contrast[:, None, None]
    return np.concatenate([waves.reshape(len(edges), DESCRIBED - 4), mean, contrast[:, None]], axis=1).astype(
        np.float32
    )


def context(maps: NDArray[np.float32], edges: Edges) -> Values:
    """Probability maps (H, W, classes) on a coarse grid around each edge point: float32 (n, CONTEXT · classes)."""
    seen = around(maps, edges, _GRID, _ASIDE)
    return np.asarray(seen.reshape(len(edges), CONTEXT * maps.shape[2]))
