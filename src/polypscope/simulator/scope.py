"""How the endoscope moves: along the lumen, slowing down at polyps and turning towards them.

Insertion goes towards the caecum and withdrawal comes back, both looking ahead; pitch, yaw, roll, speed, pauses and a
fine tremor are drawn from the seed. Every position is pushed away from the wall and from polyps until it keeps its
distance, so the camera is never outside the lumen or inside a polyp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.records.errors import InputError

__all__ = ["Lumen", "NoRoom", "Target", "fly"]

Array = NDArray[np.float64]
CLEARANCE_MM = 4.0
LEAST_CLEARANCE_MM = 1.5


class NoRoom(InputError):
    """There is no way for the camera along this stretch: not even the centreline keeps clear of every wall."""


@dataclass(frozen=True)
class Target:
    """A polyp as the endoscopist sees it: where it is along the lumen and in space."""

    along_mm: float
    apex: Array
    size_mm: float


class Lumen:
    """The space inside a surface: distance to the nearest wall and which side of it a point is on."""

    def __init__(self, vertices: Array, normals: NDArray[np.float32]) -> None:
        from scipy.spatial import cKDTree

        used = np.flatnonzero((normals != 0).any(1))
        self._vertices, self._normals = vertices[used], normals[used].astype(np.float64)
        self._tree = cKDTree(self._vertices, balanced_tree=False, compact_nodes=False)

    def clearance(self, points: Array) -> tuple[Array, Array]:
        """Signed distance [n] (negative: outside) and the direction [n, 3] that leads away from the wall."""
        distance, nearest = self._tree.query(points, k=1)
        away = points - self._vertices[nearest]
        normal = self._normals[nearest]
        side = np.einsum("ij,ij->i", away, normal)
        return np.where(side >= -1e-9, distance, -distance), normal


def _wander(rng: np.random.Generator, count: int, period: float, channels: int = 1) -> Array:
    """Smooth random curves [count, channels] with unit deviation that change over about `period` frames."""
    from scipy.ndimage import gaussian_filter1d

    margin = int(4 * period) + 1
    white = rng.standard_normal((count + 2 * margin, channels))
    curve = gaussian_filter1d(white, period, axis=0, mode="wrap")[margin : margin + count]
    return curve * np.sqrt(2 * period * np.sqrt(np.pi))


@dataclass(frozen=True)
class _View:
    """A place from which a polyp is inspected."""

    along_mm: float
    point: Array
    look_at: Array
    width_mm: float
    far_mm: float


def _view(rng: np.random.Generator, target: Target, axis_point: Array, tangent: Array, zoom: float) -> _View:
    """Somewhere between face to face and along the wall, so that the polyp spans 12 to 62 % of the picture."""
    inward = axis_point - target.apex
    inward -= (inward @ tangent) * tangent
    inward /= max(float(np.linalg.norm(inward)), 1e-9)
    share = 0.12 + 0.5 * rng.beta(1.4, 1.6)
    distance = float(np.clip(target.size_mm * zoom / share, 5.0, 45.0))
    tilt = np.radians(rng.uniform(15, 80))
    back = distance * np.sin(tilt)
    point = target.apex + distance * np.cos(tilt) * inward - back * tangent
    aside = np.cross(inward, tangent) * rng.normal(0, 0.18) + tangent * rng.normal(0, 0.18)
    return _View(
        target.along_mm - back,
        point,
        target.apex + distance * aside,
        float(rng.uniform(3, 9)),
        float(rng.uniform(12, 35)),
    )


def fly(
    rng: np.random.Generator,
    along_mm: Array,
    centre: Array,
    frames: Array,
    radius_mm: Array,
    lumen: Lumen,
    targets: list[Target],
    count: int,
    start_mm: float,
    end_mm: float,
    withdrawal: bool,
    zoom: float = 0.6,
    tremor: float = 1.0,
) -> Array:
    """Camera-to-world poses [count, 4, 4] in mm for one passage between two positions of the centreline.

    `zoom` is the focal length over the picture's width: it decides how near the scope goes to see a polyp well.
    """
    from scipy.ndimage import gaussian_filter1d

    at = lambda s, table: np.stack([np.interp(s, along_mm, table[:, k]) for k in range(table.shape[1])], -1)
    views = []
    for target in targets:
        here = np.array([target.along_mm])
        views.append(_view(rng, target, at(here, centre)[0], at(here, frames.reshape(-1, 9))[0, :3], zoom))
    fine = np.linspace(start_mm, end_mm, 800)
    slow = np.ones(len(fine))
    for view in views:
        slow += rng.uniform(6, 14) * np.exp(-(((fine - view.along_mm) / view.width_mm) ** 2))
    for _ in range(rng.poisson(0.6)):
        slow += rng.uniform(4, 12) * np.exp(-(((fine - rng.uniform(start_mm, end_mm)) / 1.5) ** 2))  # a pause
    clock = np.concatenate([[0], np.cumsum(0.5 * (slow[1:] + slow[:-1]))])
    times = np.linspace(0, clock[-1], count) + 0.15 * clock[-1] / max(count, 1) * _wander(rng, count, 6)[:, 0]
    s = np.interp(np.sort(np.clip(times, 0, clock[-1])), clock, fine)
    if withdrawal:
        s = s[::-1]
    basis = at(s, frames.reshape(-1, 9)).reshape(-1, 3, 3)
    room = np.interp(s, along_mm, radius_mm)
    off = _wander(rng, count, rng.uniform(18, 50), 2) * (0.16 * room)[:, None]
    position = at(s, centre) + off[:, :1] * basis[:, 1] + off[:, 1:] * basis[:, 2]
    ahead_mm = rng.uniform(14, 30)
    forward = at(np.minimum(s + ahead_mm, along_mm[-1]), centre) - at(s, centre)
    gaze = forward / np.linalg.norm(forward, axis=1, keepdims=True)
    for view in views:
        gap = view.along_mm - s
        near = np.exp(-((gap / (1.4 * view.width_mm)) ** 2))[:, None]
        position = position * (1 - near) + (view.point - gap[:, None] * basis[:, 0]) * near
        aim = view.look_at - position
        aim /= np.linalg.norm(aim, axis=1, keepdims=True)
        weight = 1 / (1 + np.exp((gap - view.far_mm) / 4)) / (1 + np.exp(-(gap + 0.8 * view.width_mm) / 1.5))
        weight = (weight * rng.uniform(0.75, 1.0))[:, None]
        gaze = gaze * (1 - weight) + aim * weight
    position = gaussian_filter1d(position, 2.0, axis=0, mode="nearest")
    position = _keep_clear(position, at(s, centre), lumen)
    gaze = gaussian_filter1d(gaze, 2.5, axis=0, mode="nearest")
    gaze += np.radians(rng.uniform(3, 11)) * _wander(rng, count, rng.uniform(10, 25), 3)
    gaze += np.radians(0.15 * tremor) * rng.standard_normal((count, 3))
    gaze /= np.linalg.norm(gaze, axis=1, keepdims=True)
    roll = rng.uniform(0, 2 * np.pi) + np.radians(25) * _wander(rng, count, rng.uniform(30, 80))[:, 0]
    up = np.cos(roll)[:, None] * basis[:, 1] + np.sin(roll)[:, None] * basis[:, 2]
    right = np.cross(up, gaze)
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    poses = np.tile(np.eye(4), (count, 1, 1))
    poses[:, :3, 0], poses[:, :3, 1], poses[:, :3, 2] = right, np.cross(gaze, right), gaze
    poses[:, :3, 3] = position
    return poses


def _keep_clear(position: Array, safe: Array, lumen: Lumen) -> Array:
    """Push positions out of the wall; where that fails, fall back towards the centreline."""
    from scipy.ndimage import gaussian_filter1d

    for _ in range(10):
        distance, away = lumen.clearance(position)
        short = np.maximum(CLEARANCE_MM - distance, 0)
        if not short.any():
            return position
        # Neighbours in time move along, so that the path stays smooth.
        push = gaussian_filter1d(short[:, None] * away, 1.2, axis=0, mode="nearest") * 1.2 + 0.4 * short[:, None] * away
        position = position + push
    distance, _ = lumen.clearance(position)
    for pull in (0.5, 1.0):
        bad = distance < LEAST_CLEARANCE_MM
        if not bad.any():
            return position
        position = np.where(bad[:, None], position + pull * (safe - position), position)
        distance, _ = lumen.clearance(position)
    if (distance < LEAST_CLEARANCE_MM).any():
        raise NoRoom(
            f"the lumen: expected room of {LEAST_CLEARANCE_MM} mm round the camera, found "
            f"{float(distance.min()):.2f} mm; the centreline leaves the surface or the surface is too narrow: check "
            "that both have the same units and place."
        )
    return position
