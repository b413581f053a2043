"""Triangle surfaces of the virtual colon, and how a polyp is sewn into them.

A polyp is never placed *on* the wall: the wall's triangles under it are cut out and the polyp's own mesh is zipped to
the rim of the hole, so that the surface stays one closed sheet without gaps, floating parts or hidden walls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["Chart", "Placement", "Surface", "chart_at", "open_edges", "sew", "vertex_normals"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Surface:
    """One oriented triangle sheet in millimetres; the front of every triangle looks into the lumen.

    Attributes
    ----------
    vertices: float64 [V, 3] mm.
    faces: int32 [F, 3], counter-clockwise as seen from the lumen.
    labels: uint8 [F], 0 = wall, 1...254 = polyp instance (the truth).
    materials: uint8 [F], 0 = wall, k = polyp k including the skirt that leads up to it (the look).
    blend: float32 [V], 0 = wall tissue ... 1 = polyp tissue.
    """

    vertices: Array
    faces: NDArray[np.int32]
    labels: NDArray[np.uint8]
    materials: NDArray[np.uint8]
    blend: NDArray[np.float32]

    @classmethod
    def wall(cls, vertices: Array, faces: NDArray[np.int32]) -> Surface:
        """A surface that is wall everywhere."""
        none = np.zeros(len(faces), np.uint8)
        return cls(
            np.ascontiguousarray(vertices, np.float64),
            np.ascontiguousarray(faces, np.int32),
            none,
            none.copy(),
            np.zeros(len(vertices), np.float32),
        )

    def label_vertices(self, label: int) -> Array:
        """The vertices [n, 3] of all triangles with this label."""
        return self.vertices[np.unique(self.faces[self.labels == label])]


@dataclass(frozen=True)
class Chart:
    """A flat map around a point of the wall: x = origin + u·e1 + v·e2 + w·normal.

    `uvw` are the chart coordinates of the nearby vertices (`near`, indices into the surface), `inside` the faces that
    lie wholly among them and look the same way.
    """

    origin: Array
    axes: Array  # rows e1, e2, normal
    near: NDArray[np.int64]
    uvw: Array
    inside: NDArray[np.int64]
    grid: Array  # [n, n] heights over the square of ±reach_mm, NaN where there is no wall
    reach_mm: float

    def height(self, u: Array, v: Array) -> Array:
        """Height w of the wall above the chart's plane at (u, v), bilinear on a fine grid; NaN outside the chart."""
        side = self.grid.shape[0] - 1
        x = np.clip((np.asarray(u) / self.reach_mm + 1) * 0.5 * side, 0, side - 1e-9)
        y = np.clip((np.asarray(v) / self.reach_mm + 1) * 0.5 * side, 0, side - 1e-9)
        i, j = y.astype(int), x.astype(int)
        fy, fx = y - i, x - j
        g = self.grid
        upper = g[i, j] * (1 - fx) + g[i, j + 1] * fx
        return np.asarray(upper * (1 - fy) + (g[i + 1, j] * (1 - fx) + g[i + 1, j + 1] * fx) * fy)

    def to_world(self, u: Array, v: Array, w: Array) -> Array:
        return self.origin + np.stack([u, v, w], -1) @ self.axes


@dataclass(frozen=True)
class Placement:
    """A patch of polyp in chart coordinates, ring by ring from the wall to the apex.

    `rings` is float64 [M, K, 3] (u, v, w); the apex is one more vertex. `first_polyp_ring` is where the polyp begins:
    rings before it are skirt, which belongs to the wall.
    """

    rings: Array
    apex: Array
    first_polyp_ring: int


def vertex_normals(vertices: Array, faces: NDArray[np.int32]) -> NDArray[np.float32]:
    """Area-weighted unit normals [V, 3]; vertices without a face get (0, 0, 0)."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    cross = np.cross(b - a, c - a)
    out = np.zeros((len(vertices), 3))
    for axis in range(3):
        weights = np.repeat(cross[:, axis], 3)
        out[:, axis] = np.bincount(faces.ravel(), weights, minlength=len(vertices))
    length = np.linalg.norm(out, axis=1, keepdims=True)
    return (out / np.where(length > 0, length, 1.0)).astype(np.float32)


def open_edges(faces: NDArray[np.int32]) -> NDArray[np.int32]:
    """Directed edges [n, 2] without an opposite: empty for a closed, consistently oriented surface."""
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).astype(np.int64)
    big = int(faces.max()) + 1 if len(faces) else 1
    key, mirrored = edges[:, 0] * big + edges[:, 1], np.sort(edges[:, 1] * big + edges[:, 0])
    at = np.minimum(np.searchsorted(mirrored, key), max(len(key) - 1, 0))
    return edges[mirrored[at] != key].astype(np.int32)


def chart_at(
    surface: Surface, normals: NDArray[np.float32], seed: int, radius_mm: float, lean_deg: float = 72.0
) -> Chart | None:
    """The chart around vertex `seed` out to `radius_mm`, or None where the wall folds over within it."""
    vertices = surface.vertices
    origin = vertices[seed]
    offset = vertices - origin
    close = np.flatnonzero(np.einsum("ij,ij->i", offset, offset) < (1.7 * radius_mm) ** 2)
    facing = close[normals[close] @ normals[seed] > 0.0]
    normal = normals[facing].astype(np.float64).mean(0)
    normal /= np.linalg.norm(normal)
    helper = np.eye(3)[np.argmin(np.abs(normal))]
    e1 = np.cross(normal, helper)
    e1 /= np.linalg.norm(e1)
    axes = np.stack([e1, np.cross(normal, e1), normal])
    uvw = offset[close] @ axes.T
    slope = normals[close] @ normal
    within = np.hypot(uvw[:, 0], uvw[:, 1]) < radius_mm
    # One sheet only: a wall that turns away inside the disc cannot be drawn as a height over the plane.
    if np.any(slope[within] < np.cos(np.radians(lean_deg))):
        return None
    used = np.zeros(len(vertices), bool)
    used[close[slope > 0.1]] = True
    inside = np.flatnonzero(used[surface.faces].all(1) & (surface.labels == 0) & (surface.materials == 0))
    if len(inside) < 8:
        return None
    is_near = np.zeros(len(vertices), bool)
    is_near[surface.faces[inside]] = True
    near = np.flatnonzero(is_near)
    flat = (vertices[near] - origin) @ axes.T
    lookup = np.zeros(len(vertices), np.int32)
    lookup[near] = np.arange(len(near))
    grid = np.full((129, 129), np.nan)
    _fill_heights(flat, lookup[surface.faces[inside]], 1.7 * radius_mm, grid)
    return Chart(origin, axes, near, flat, inside, grid, 1.7 * radius_mm)


@njit(cache=True)
def _fill_heights(uvw, faces, reach, grid):
    side = grid.shape[0] - 1
    for f in range(faces.shape[0]):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        ax, ay = (uvw[i, 0] / reach + 1) * 0.5 * side, (uvw[i, 1] / reach + 1) * 0.5 * side
        bx, by = (uvw[j, 0] / reach + 1) * 0.5 * side, (uvw[j, 1] / reach + 1) * 0.5 * side
        cx, cy = (uvw[k, 0] / reach + 1) * 0.5 * side, (uvw[k, 1] / reach + 1) * 0.5 * side
        area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
        if area == 0:
            continue
        for y in range(max(0, int(np.ceil(min(ay, by, cy)))), min(side, int(np.floor(max(ay, by, cy)))) + 1):
            for x in range(max(0, int(np.ceil(min(ax, bx, cx)))), min(side, int(np.floor(max(ax, bx, cx)))) + 1):
                b = ((x - ax) * (cy - ay) - (cx - ax) * (y - ay)) / area
                c = ((bx - ax) * (y - ay) - (x - ax) * (by - ay)) / area
                if b >= -1e-9 and c >= -1e-9 and b + c <= 1 + 1e-9:
                    w = (1 - b - c) * uvw[i, 2] + b * uvw[j, 2] + c * uvw[k, 2]
                    if np.isnan(grid[y, x]) or w > grid[y, x]:
                        grid[y, x] = w


def _rim_loop(faces: NDArray[np.int32]) -> NDArray[np.int64] | None:
    """The single closed boundary loop of a patch of faces as ordered vertex indices, or None."""
    rim = open_edges(faces)
    follow = dict(rim.tolist())
    if len(follow) != len(rim) or not len(rim):
        return None
    loop = [int(rim[0, 0])]
    while len(loop) <= len(rim):
        step = follow.get(loop[-1])
        if step is None:
            return None
        if step == loop[0]:
            break
        loop.append(step)
    return np.asarray(loop) if len(loop) == len(rim) else None


def _zip(outer: NDArray[np.int64], outer_angle: Array, inner: NDArray[np.int64], inner_angle: Array) -> list[list[int]]:
    """Triangles between two counter-clockwise loops, both given with increasing angle over one turn."""
    turn = 2 * np.pi
    start = int(np.argmin(np.abs((outer_angle - inner_angle[0] + np.pi) % turn - np.pi)))
    outer, oa = np.roll(outer, -start), np.roll(outer_angle, -start)
    oa = np.unwrap(np.append(oa, oa[0]))
    oa += turn * np.round((inner_angle[0] - oa[0]) / turn)
    ia = np.unwrap(np.append(inner_angle, inner_angle[0]))
    i = j = 0
    triangles = []
    while i < len(outer) or j < len(inner):
        take_outer = j == len(inner) or (i < len(outer) and oa[i + 1] < ia[j + 1])
        a, b = int(outer[i % len(outer)]), int(inner[j % len(inner)])
        if take_outer:
            triangles.append([a, int(outer[(i + 1) % len(outer)]), b])
            i += 1
        else:
            triangles.append([a, int(inner[(j + 1) % len(inner)]), b])
            j += 1
    return triangles


def sew(surface: Surface, chart: Chart, patch: Placement, label: int, gap_mm: float) -> Surface | None:
    """Cut the wall under the patch and join the patch to the rim; None where the hole is not one simple loop.

    `gap_mm` is how far the rim of the hole stays away from the patch's outer ring (about one wall edge).
    """
    rings, apex = patch.rings, patch.apex
    m, k = rings.shape[:2]
    lookup = np.full(len(surface.vertices), -1)
    lookup[chart.near] = np.arange(len(chart.near))
    radius = np.hypot(rings[0, :, 0], rings[0, :, 1])
    ring_angle = np.arctan2(rings[0, :, 1], rings[0, :, 0])
    order = np.argsort(ring_angle)
    angle = np.arctan2(chart.uvw[:, 1], chart.uvw[:, 0])
    reach = np.interp(angle, ring_angle[order], radius[order], period=2 * np.pi) + gap_mm
    covered = np.hypot(chart.uvw[:, 0], chart.uvw[:, 1]) < reach
    candidates = surface.faces[chart.inside]
    cut = covered[lookup[candidates]].any(1)
    loop = _rim_loop(candidates[cut])
    if loop is None:
        return None
    # Every face that touches a covered vertex must be ours to cut, or the hole would run under a neighbour.
    is_covered = np.zeros(len(surface.vertices), bool)
    is_covered[chart.near[covered]] = True
    touching = is_covered[surface.faces].any(1)
    touching[chart.inside] = False
    if touching.any():
        return None
    loop_angle = angle[lookup[loop]]
    if np.any(np.diff(np.unwrap(np.append(loop_angle, loop_angle[0]))) <= 0):
        return None

    first = len(surface.vertices)
    ids = first + np.arange(m * k).reshape(m, k)
    apex_id = first + m * k
    # One vertex may be reached from two sides of the plane; rings run counter-clockwise seen from the lumen.
    right = np.roll(ids, -1, 1)
    lower = np.stack([ids[:-1], right[:-1], right[1:]], -1).reshape(-1, 3)
    upper = np.stack([ids[:-1], right[1:], ids[1:]], -1).reshape(-1, 3)
    cap = np.stack([ids[-1], right[-1], np.full(k, apex_id)], -1)
    strip = np.array(_zip(loop, loop_angle, ids[0], np.unwrap(ring_angle)))
    ring_of = np.concatenate([np.repeat(np.arange(m - 1), k)] * 2 + [np.full(k, m - 1)])
    polyp_faces = np.concatenate([lower, upper, cap])

    keep = np.ones(len(surface.faces), bool)
    keep[chart.inside[cut]] = False
    is_polyp = ring_of >= patch.first_polyp_ring
    world = chart.to_world(*np.moveaxis(np.concatenate([rings.reshape(-1, 3), apex[None]]), -1, 0))
    ramp = np.clip(np.arange(m) / max(patch.first_polyp_ring, 1), 0, 1) ** 2
    ramp = np.clip(0.5 * ramp + 0.5 * np.clip((np.arange(m) - patch.first_polyp_ring + 1) / 3, 0, 1), 0, 1)
    blend = np.concatenate([np.repeat(ramp, k), [1.0]]).astype(np.float32)
    return replace(
        surface,
        vertices=np.concatenate([surface.vertices, world]),
        faces=np.concatenate([surface.faces[keep], strip, polyp_faces]).astype(np.int32),
        labels=np.concatenate(
            [surface.labels[keep], np.zeros(len(strip), np.uint8), np.where(is_polyp, label, 0).astype(np.uint8)]
        ),
        materials=np.concatenate([surface.materials[keep], np.full(len(strip) + len(polyp_faces), label, np.uint8)]),
        blend=np.concatenate([surface.blend, blend]),
    )
