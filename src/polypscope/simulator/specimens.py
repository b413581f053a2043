"""One polyp on a stretch of wall, seen from many sides: masks and depth with a known size, without pictures.

The caliper is fitted and judged on these (recipes/caliper.py, benchmarks/caliper.py): they are made in milliseconds,
and they cover the whole hemisphere of views evenly, which a scope's path through a colon does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.geometry import cameras
from polypscope.records import BinaryMask, Camera, DepthKind, DepthMap
from polypscope.simulator.polyps import PolypModel, sew_polyp
from polypscope.simulator.renderer import Hits, Lens, cast
from polypscope.simulator.surface import Surface, vertex_normals

__all__ = ["Specimen", "specimens"]

Array = NDArray[np.float64]

_EDGE_MM = 0.9
_LENGTH_MM = 110.0


@dataclass(frozen=True, eq=False)
class Specimen:
    """One view: the whole polyp is in the picture; `distance_mm` is from the camera to the polyp's middle."""

    model: PolypModel
    camera: Camera
    mask: BinaryMask
    depth: DepthMap
    distance_mm: float


def specimens(
    model: PolypModel,
    rng: np.random.Generator,
    views: int,
    *,
    size_px: int = 320,
    distance_mm: tuple[float, float] = (8.0, 50.0),
    fov_deg: tuple[float, float] = (60.0, 120.0),
) -> Iterator[Specimen]:
    """Views of one polyp from inside a slightly uneven tube of 14 to 32 mm radius (wider for the largest polyps).

    Distances are log-uniform, directions uniform over what lies inside the tube and at least 3 mm from its wall;
    half of the views have the field of view of the published virtual set (78.4 degrees), the others draw it.
    """
    grown = _grown(model, rng)
    if grown is None:
        return
    surface, radius = grown
    points = surface.label_vertices(1)
    middle = points.mean(axis=0)
    given = 0
    for _ in range(60 * views):
        if given == views:
            return
        towards = rng.normal(size=3)
        distance = float(np.exp(rng.uniform(*np.log(distance_mm))))
        position = middle + distance * towards / np.linalg.norm(towards)
        if np.hypot(position[0], position[1]) > radius - 3 or np.linalg.norm(points - position, axis=1).min() < 4:
            continue
        fov = 78.4 if rng.random() < 0.5 else float(rng.uniform(*fov_deg))
        camera = Camera.from_fov(size_px, size_px, fov, "pinhole" if fov < 105 else "fisheye")
        pose = _looking(position, middle, rng)
        pixels = cameras.project(camera, (points - position) @ pose[:3, :3])
        if not np.isfinite(pixels).all() or pixels.min() < 3 or pixels.max() > size_px - 4:
            continue
        hits, lens = Hits.empty(camera), Lens.of(camera)
        cast(hits, lens, surface.vertices, surface.faces, pose, two_sided=True)
        mask = (hits.face >= 0) & (surface.labels[np.maximum(hits.face, 0)] == 1)
        if np.count_nonzero(mask) < 12:
            continue
        given += 1
        yield Specimen(model, camera, BinaryMask(mask), DepthMap(hits.depth_mm(lens), DepthKind.Z_MM), distance)


def _grown(model: PolypModel, rng: np.random.Generator) -> tuple[Surface, float] | None:
    for _ in range(20):
        radius = max(float(rng.uniform(14, 32)), model.size_mm / 0.9)
        wall, around = _tube(radius, rng)
        normals = vertex_normals(wall.vertices, wall.faces)
        rows = len(wall.vertices) // around
        place = (rows // 2) * around + int(rng.integers(around))
        sewn = sew_polyp(wall, normals, model, place, 1, _EDGE_MM)
        if sewn is not None:
            return sewn[0], radius
    return None


def _tube(radius_mm: float, rng: np.random.Generator) -> tuple[Surface, int]:
    around, rows = int(2 * np.pi * radius_mm / _EDGE_MM), int(_LENGTH_MM / _EDGE_MM)
    angle, along = np.meshgrid(
        np.linspace(0, 2 * np.pi, around, endpoint=False), np.linspace(-_LENGTH_MM / 2, _LENGTH_MM / 2, rows)
    )
    r = np.full_like(angle, radius_mm)
    for _ in range(12):
        wave = np.cos(rng.integers(1, 6) * angle + rng.uniform(0, 2 * np.pi))
        r += rng.normal(0, 0.15) * wave * np.cos(2 * np.pi * along / rng.uniform(12, 60) + rng.uniform(0, 2 * np.pi))
    vertices = np.stack([r * np.cos(angle), r * np.sin(angle), along], -1).reshape(-1, 3)
    index = np.arange(rows * around).reshape(rows, around)
    a, b = index[:-1], np.roll(index, -1, 1)[:-1]
    c, d = index[1:], np.roll(index, -1, 1)[1:]
    # Counter-clockwise as seen from the axis: the front of the wall looks into the tube.
    faces = np.concatenate([np.stack([a, c, b], -1).reshape(-1, 3), np.stack([b, c, d], -1).reshape(-1, 3)])
    return Surface.wall(vertices, faces.astype(np.int32)), around


def _looking(position: Array, at: Array, rng: np.random.Generator) -> Array:
    ahead = (at - position) / np.linalg.norm(at - position) + rng.normal(0, 0.2, 3)
    ahead /= np.linalg.norm(ahead)
    right = np.cross(rng.normal(size=3), ahead)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :3] = np.stack([right, np.cross(ahead, right), ahead], axis=1)
    pose[:3, 3] = position
    return pose
