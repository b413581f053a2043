"""A colon from CT: a given surface with its centreline, brought to millimetres by a stated anatomical measure.

Public surfaces often carry no units. The measure is the length of the whole centreline (`--centerline-mm`): the mean
colorectal length at CT colonography is 1895 mm (Khashab et al., Endoscopy 2009, 41: 674). Coarse surfaces are refined
by Loop subdivision, which also rounds off the facets.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polypscope.records.errors import DamagedInput, InputError
from polypscope.simulator.colon import SEGMENT_ENDS, SEGMENTS, Stretch, by_arc_length, rotation_minimising_frames
from polypscope.simulator.meshfile import read_centreline, read_mesh
from polypscope.simulator.surface import Surface, open_edges, vertex_normals

__all__ = ["CtColon", "loop_subdivide"]

Array = NDArray[np.float64]
LENGTH_RANGE_MM = (60.0, 2600.0)
RADIUS_RANGE_MM = (5.0, 50.0)


class CtColon:
    """A CT surface as the simulator needs it: the same interface as `Colon`."""

    def __init__(self, mesh: Path, centerline: Path, centerline_mm: float | None = None) -> None:
        from scipy.ndimage import gaussian_filter1d
        from scipy.spatial import cKDTree

        vertices, faces = read_mesh(mesh)
        points = read_centreline(centerline)
        length = float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())
        scale = 1.0 if centerline_mm is None else centerline_mm / length
        self.mm_per_unit = scale
        low, high = LENGTH_RANGE_MM
        if not low <= length * scale <= high:
            raise InputError(
                f"{centerline}: expected a centreline of {low:g} to {high:g} mm, found {length * scale:.4g}; if the "
                "file is not in millimetres, state the real length of the centreline, for example --centerline-mm 1895."
            )
        self.seed, self.name = 0, mesh.stem
        self._whole = centerline_mm is not None
        line, self.along_mm = by_arc_length(points * scale, 1.0)
        self.centre = gaussian_filter1d(line, 6, axis=0, mode="nearest")
        self.frames = rotation_minimising_frames(self.centre)
        self.length_mm = float(self.along_mm[-1])
        self._vertices, self._faces = vertices * scale, faces
        self._tree = cKDTree(self.centre)
        distance, nearest = self._tree.query(self._vertices)
        radius = float(np.median(distance))
        low, high = RADIUS_RANGE_MM
        if not low <= radius <= high:
            raise InputError(
                f"{mesh}: expected a wall {low:g} to {high:g} mm away from the centreline, found {radius:.4g} mm; mesh "
                "and centreline must have the same units and place: state the length with --centerline-mm."
            )
        corner = self._vertices[faces]
        normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
        middle = corner.mean(1)
        inward = np.einsum("ij,ij->i", normal, self.centre[self._tree.query(middle)[1]] - middle) > 0
        if inward.mean() < 0.5:
            self._faces = np.ascontiguousarray(faces[:, ::-1])
        # What the surface covers: a file may hold one segment of the colon with the centreline of the whole.
        covered = np.bincount(nearest, minlength=len(self.centre)) > 0
        filled = gaussian_filter1d(covered.astype(float), 4) > 0.2
        self.first_mm, self.last_mm = self._longest_run(filled)
        if self.last_mm - self.first_mm < 60:
            raise InputError(
                f"{mesh}: expected a surface along at least 60 mm of the centreline, found "
                f"{self.last_mm - self.first_mm:.0f} mm; mesh and centreline do not belong together."
            )
        # Everything that can be wrong with the files is said now, before anything is simulated.
        inner = (self.along_mm > self.first_mm + 10) & (self.along_mm < self.last_mm - 10)
        self._check_inside(self._vertices, vertex_normals(self._vertices, self._faces), self.centre[inner], 0.2)
        _close_ends(self._vertices, self._faces, self.centre)

    def _longest_run(self, filled: NDArray[np.bool_]) -> tuple[float, float]:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], filled.astype(int), [0]])))
        starts, ends = edges[::2], edges[1::2]
        best = int(np.argmax(ends - starts))
        return float(self.along_mm[starts[best]]), float(self.along_mm[ends[best] - 1])

    def segment_at(self, along_mm: float) -> str:
        if not self._whole:
            return "unknown"
        return SEGMENTS[int(np.searchsorted(SEGMENT_ENDS, along_mm / self.length_mm).clip(0, 7))]

    def stretch(self, start_mm: float, end_mm: float, triangles: int = 150_000) -> Stretch:
        """Cut out, cap and refine the part between two positions of the centreline."""
        start, end = max(start_mm, self.first_mm), min(end_mm, self.last_mm)
        near = np.flatnonzero((self.along_mm > start - 60) & (self.along_mm < end + 60))
        from scipy.spatial import cKDTree

        tree = cKDTree(self.centre[near])
        along = self.along_mm[near[tree.query(self._vertices[self._faces].mean(1))[1]]]
        wanted = (along >= start) & (along <= end)
        middle = self.centre[np.searchsorted(self.along_mm, 0.5 * (start + end))]
        faces = _connected(
            self._faces, _without_islands(self._faces, wanted, len(self._vertices)), self._vertices, middle
        )
        used, compact = np.unique(faces, return_inverse=True)
        vertices, faces = self._vertices[used], compact.reshape(-1, 3).astype(np.int32)
        line = (self.along_mm >= start) & (self.along_mm <= end)
        vertices, faces = _close_ends(vertices, faces, None)
        while len(faces) * 2 < triangles:
            vertices, faces = loop_subdivide(vertices, faces)
        surface = Surface.wall(vertices, faces)
        normals = vertex_normals(vertices, faces)
        centre, s = self.centre[line], self.along_mm[line]
        self._check_inside(vertices, normals, centre, 0.1)
        return self._describe(surface, centre, s, self.frames[line])

    def _check_inside(self, vertices: Array, normals: NDArray[np.float32], centre: Array, allowed: float) -> None:
        # Coarse thin folds can mislead the nearest vertex about its side, hence a share that is forgiven.
        from polypscope.simulator.scope import Lumen

        distance, _ = Lumen(vertices, normals).clearance(centre[5:-5])
        outside = float((distance < 0).mean())
        if outside > allowed:
            raise InputError(
                f"{self.name}: expected the centreline inside the surface, found {100 * outside:.0f} % of it outside; "
                "mesh and centreline must have the same units and place."
            )

    def _describe(self, surface: Surface, centre: Array, s: Array, frames: Array) -> Stretch:
        from scipy.spatial import cKDTree

        distance, nearest = cKDTree(centre).query(surface.vertices)
        count = np.maximum(np.bincount(nearest, minlength=len(centre)), 1)
        radius = np.bincount(nearest, distance, minlength=len(centre)) / count
        window = np.ones(15) / 15
        radius = np.convolve(np.pad(radius, 7, mode="edge"), window, "valid")
        along = s[nearest]
        body = (along > s[0] + 8) & (along < s[-1] - 8)
        curvature = np.linalg.norm(np.gradient(frames[:, 0], s, axis=0), axis=1)
        share = distance / np.maximum(radius[nearest], 1e-9)
        edge = np.linalg.norm(surface.vertices[surface.faces[:, 0]] - surface.vertices[surface.faces[:, 1]], axis=1)
        places = {
            "fold": np.flatnonzero(body & (share < 0.8)),
            "bend": np.flatnonzero(body & (curvature[nearest] > np.quantile(curvature, 0.75))),
            "wall": np.flatnonzero(body & (share >= 0.8)),
        }
        names = tuple(self.segment_at(v) for v in s)
        return Stretch(surface, s, centre, frames, radius, names, float(edge.mean()), places, along)


def _without_islands(faces: NDArray[np.int32], wanted: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """Take small unwanted patches back in: at tight bends some wall is nearer to a farther part of the centreline."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    rest = faces[~wanted]
    if not len(rest):
        return wanted
    edges = np.concatenate([rest[:, [0, 1]], rest[:, [1, 2]]])
    _, part = connected_components(coo_matrix((np.ones(len(edges)), edges.T), shape=(count,) * 2), directed=False)
    part = part[rest[:, 0]]
    small = np.bincount(part) < 0.06 * wanted.sum()
    filled = wanted.copy()
    filled[np.flatnonzero(~wanted)[small[part]]] = True
    return filled


def _connected(faces: NDArray[np.int32], wanted: NDArray[np.bool_], vertices: Array, seed: Array) -> NDArray[np.int32]:
    """The piece of the wanted faces that surrounds the seed point."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    chosen = faces[wanted]
    edges = np.concatenate([chosen[:, [0, 1]], chosen[:, [1, 2]]])
    graph = coo_matrix((np.ones(len(edges)), edges.T), shape=(len(vertices),) * 2)
    _, part = connected_components(graph, directed=False)
    nearest = int(np.argmin(np.linalg.norm(vertices[chosen[:, 0]] - seed, axis=1)))
    return chosen[part[chosen[:, 0]] == part[chosen[nearest, 0]]]


def _close_ends(vertices: Array, faces: NDArray[np.int32], centre: Array | None) -> tuple[Array, NDArray[np.int32]]:
    """Cap the openings that the centreline passes through; any other hole is an error.

    Without a centreline every opening is capped: for a piece that was cut out of a surface that was checked before.
    """
    from scipy.spatial import cKDTree

    follow: dict[int, list[int]] = {}
    for a, b in open_edges(faces).tolist():
        follow.setdefault(a, []).append(b)
    tree = None if centre is None else cKDTree(centre)
    new_vertices, new_faces = [vertices], [faces]
    count = len(vertices)
    while follow:
        start = next(iter(follow))
        loop = [start]
        while True:
            choices = follow.get(loop[-1])
            if not choices:
                break
            step = choices.pop()
            if not choices:
                del follow[loop[-1]]
            if step == start:
                break
            loop.append(step)
        if len(loop) < 3:
            continue
        rim = vertices[loop]
        middle = rim.mean(0)
        size = float(np.linalg.norm(rim - middle, axis=1).max())
        away = 0.0 if tree is None else float(tree.query(middle)[0])
        if away > 1.2 * size + 1.0 and size > 2.0:
            raise DamagedInput(
                f"the mesh: expected no holes except where the centreline enters and leaves, found one of "
                f"{2 * size:.1f} mm near ({middle[0]:.0f}, {middle[1]:.0f}, {middle[2]:.0f}) mm; close it first."
            )
        new_vertices.append(middle[None])
        following = np.roll(loop, -1)
        new_faces.append(np.stack([following, loop, np.full(len(loop), count)], -1).astype(np.int32))
        count += 1
    return np.concatenate(new_vertices), np.concatenate(new_faces)


def loop_subdivide(vertices: Array, faces: NDArray[np.int32]) -> tuple[Array, NDArray[np.int32]]:
    """One step of Loop's subdivision (1987) of a closed surface: four triangles for each one."""
    n = len(vertices)
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).astype(np.int64)
    opposite = np.concatenate([faces[:, 2], faces[:, 0], faces[:, 1]])
    key = np.minimum(edges[:, 0], edges[:, 1]) * n + np.maximum(edges[:, 0], edges[:, 1])
    unique, first, inverse, uses = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    total = np.stack([np.bincount(inverse, vertices[opposite, k], minlength=len(unique)) for k in range(3)], -1)
    ends = vertices[edges[first, 0]] + vertices[edges[first, 1]]
    # Two triangles share an inner edge; an edge with any other number of them just gets its midpoint.
    inner = (uses == 2)[:, None]
    middle = np.where(inner, 0.375 * ends + 0.125 * total, 0.5 * ends)
    a, b = edges[first, 0], edges[first, 1]
    degree = np.bincount(a, minlength=n) + np.bincount(b, minlength=n)
    around = np.stack(
        [np.bincount(a, vertices[b, k], minlength=n) + np.bincount(b, vertices[a, k], minlength=n) for k in range(3)],
        -1,
    )
    d = np.maximum(degree, 1)
    beta = (0.625 - (0.375 + 0.25 * np.cos(2 * np.pi / d)) ** 2) / d
    even = (1 - d * beta)[:, None] * vertices + beta[:, None] * around
    even[degree == 0] = vertices[degree == 0]
    e = n + inverse.reshape(3, -1)
    parts = [
        (faces[:, 0], e[0], e[2]),
        (faces[:, 1], e[1], e[0]),
        (faces[:, 2], e[2], e[1]),
        (e[0], e[1], e[2]),
    ]
    return np.concatenate([even, middle]), np.concatenate([np.stack(p, -1) for p in parts]).astype(np.int32)
