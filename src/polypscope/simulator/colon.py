"""The procedural colon: an anatomical centreline with flexures, and a wall with haustra, folds and taeniae.

Ranges (all by seed): length 1.4-2.4 m; radius by segment (caecum 30-40 mm, ascending 20-30, transverse 18-28,
descending, sigmoid and rectum 12-20); haustra every 20-50 mm; folds 3-10 mm deep and 3-6 mm thick over one or two of
the three sectors between the taeniae; triangular cross-section (cos 3θ) .08-.15 in the transverse colon, less
elsewhere; low-frequency wall noise .2-.5 mm. Only the stretch that a sequence can see is meshed, and both its ends are
capped, so that every ray hits tissue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.simulator.surface import Surface

__all__ = ["SEGMENTS", "SEGMENT_ENDS", "Colon", "Stretch", "by_arc_length", "rotation_minimising_frames"]

Array = NDArray[np.float64]

SEGMENTS = (
    "rectum",
    "sigmoid",
    "descending",
    "splenic flexure",
    "transverse",
    "hepatic flexure",
    "ascending",
    "caecum",
)
# Where each segment ends, as a fraction of the length from the anus.
SEGMENT_ENDS = np.array([0.09, 0.33, 0.50, 0.55, 0.82, 0.86, 0.96, 1.0])
_RADIUS_MM = ((15, 20), (12, 18), (14, 20), (18, 24), (18, 28), (20, 27), (20, 30), (30, 40))
_TRIANGLE = ((0.0, 0.02), (0.02, 0.06), (0.03, 0.08), (0.06, 0.12), (0.08, 0.15), (0.06, 0.12), (0.03, 0.08), (0, 0.03))
# The course of a colon seen from the front: x to the patient's left, y up, z forward; scaled to the length.
_COURSE = np.array(
    [
        [0, -10, -4], [0, -6, -6], [1, -3, -5], [4, -2, 0], [2, 1, 3], [-1, -1, 4], [2, -3, 2], [7, -2, 0], [9, 2, -2],
        [9.5, 7, -3], [9.8, 12, -4], [9, 17, -4], [6, 17, 0], [3, 14, 4], [0, 12.5, 5], [-3, 13, 4.5], [-6, 15, 1],
        [-8.5, 15, -3], [-9, 11, -3.5], [-9, 6, -3], [-9, 1, -2], [-8.5, -3, -1],
    ]
)  # fmt: skip


@dataclass(frozen=True)
class _Fold:
    at_mm: float
    depth_mm: float
    thickness_mm: float
    centre_rad: float
    width_rad: float
    lean: float
    wave_mm: float
    phase: float


@dataclass(frozen=True)
class Stretch:
    """The meshed part of a colon and its centreline: what a sequence flies through.

    Attributes
    ----------
    surface: the wall, capped at both ends.
    along_mm: float64 [n], arc length at the centreline points.
    centre: float64 [n, 3] mm; frames: float64 [n, 3, 3], rows tangent, normal, binormal.
    radius_mm: float64 [n], mean radius.
    segment: name per centreline point.
    edge_mm: typical length of a wall edge.
    places: vertices where polyps may grow, by kind of place: "fold", "bend", "wall".
    vertex_along_mm: float64 [V], position of each vertex along the centreline.
    """

    surface: Surface
    along_mm: Array
    centre: Array
    frames: Array
    radius_mm: Array
    segment: tuple[str, ...]
    edge_mm: float
    places: dict[str, NDArray[np.int64]]
    vertex_along_mm: Array


def _spline(points: Array, count: int) -> Array:
    from scipy.interpolate import CubicSpline

    chord = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1) ** 0.5)])
    return np.asarray(CubicSpline(chord, points)(np.linspace(0, chord[-1], count)))


def by_arc_length(points: Array, step_mm: float) -> tuple[Array, Array]:
    """Points [n, 3] at equal steps along a polyline, and their arc length [n]."""
    along = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    s = np.arange(0, along[-1], step_mm)
    return np.stack([np.interp(s, along, points[:, k]) for k in range(3)], -1), s


def rotation_minimising_frames(points: Array) -> Array:
    """Frames [n, 3, 3] (rows tangent, normal, binormal) by double reflection (Wang et al., 2008)."""
    tangent = np.gradient(points, axis=0)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    normal = np.empty_like(points)
    first = np.cross(tangent[0], np.eye(3)[np.argmin(np.abs(tangent[0]))])
    normal[0] = first / np.linalg.norm(first)
    for i in range(len(points) - 1):
        v1 = points[i + 1] - points[i]
        c1 = v1 @ v1
        reflected = normal[i] - (2 / c1) * (v1 @ normal[i]) * v1
        t_reflected = tangent[i] - (2 / c1) * (v1 @ tangent[i]) * v1
        v2 = tangent[i + 1] - t_reflected
        c2 = v2 @ v2
        normal[i + 1] = reflected - (2 / c2) * (v2 @ reflected) * v2 if c2 > 1e-18 else reflected
    return np.stack([tangent, normal, np.cross(tangent, normal)], 1)


class Colon:
    """One subject's colon, fixed by its seed.

    >>> colon = Colon(7)
    >>> 1400 <= colon.length_mm <= 2400
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.name = f"colon-{seed}"
        rng = np.random.default_rng([seed, 1])
        self.length_mm = float(rng.uniform(1400, 2400))
        course = _COURSE * rng.uniform(0.85, 1.15, 3) + rng.normal(0, 0.5, _COURSE.shape)
        line, s = by_arc_length(_spline(course, 6000), 0.02)
        line *= self.length_mm / s[-1]
        self.centre, self.along_mm = by_arc_length(line, 1.0)
        self.centre = _smooth(self.centre, 22)
        self.frames = rotation_minimising_frames(self.centre)
        fraction = self.along_mm / self.along_mm[-1]
        self._segment_of = np.searchsorted(SEGMENT_ENDS, fraction, side="left").clip(0, 7)
        self.radius_mm = self._piecewise(_RADIUS_MM, rng, 30)
        self.triangle = self._piecewise(_TRIANGLE, rng, 30)
        curvature = np.linalg.norm(np.gradient(self.frames[:, 0], self.along_mm, axis=0), axis=1)
        # A tube may not cross itself on the inside of a bend.
        self.radius_mm = np.minimum(self.radius_mm, _smooth((0.72 / np.maximum(curvature, 1e-6))[:, None], 10)[:, 0])
        self.curvature = curvature
        self.taenia_rad = float(rng.uniform(0, 2 * np.pi))
        self.first_mm, self.last_mm = 0.0, float(self.along_mm[-1])
        self.folds = self._make_folds(rng)
        self._noise = _WallNoise(rng, float(rng.uniform(0.2, 0.5)))

    def _piecewise(self, ranges: tuple[tuple[float, float], ...], rng: np.random.Generator, width: int) -> Array:
        values = np.array([rng.uniform(*r) for r in ranges])
        return _smooth(values[self._segment_of][:, None], width)[:, 0]

    def _make_folds(self, rng: np.random.Generator) -> list[_Fold]:
        folds, at = [], 12.0
        smoothness = rng.uniform(0.55, 1.0)
        while at < self.along_mm[-1] - 8:
            i = int(at)
            radius = self.radius_mm[i]
            name = SEGMENTS[self._segment_of[i]]
            few = 0.75 if name in ("sigmoid", "descending", "rectum") else 1.0
            for sector in rng.permutation(3)[: rng.choice([1, 2, 3], p=[0.3, 0.5, 0.2])]:
                depth = min(rng.uniform(3, 10) * few * smoothness, 0.38 * radius)
                folds.append(
                    _Fold(
                        at + rng.normal(0, 2.0),
                        max(depth, 1.2),
                        rng.uniform(3, 6),
                        self.taenia_rad + (sector + 0.5) * 2 * np.pi / 3 + rng.normal(0, 0.12),
                        rng.uniform(0.8, 1.35),
                        rng.normal(0, 0.35),
                        rng.uniform(0.5, 3.0),
                        rng.uniform(0, 2 * np.pi),
                    )
                )
            at += rng.uniform(20, 50) * (0.8 if name == "transverse" else 1.0)
        return folds

    def segment_at(self, along_mm: float) -> str:
        return SEGMENTS[self._segment_of[int(np.clip(along_mm, 0, len(self.along_mm) - 1))]]

    def stretch(self, start_mm: float, end_mm: float, triangles: int = 150_000) -> Stretch:
        """Mesh the part between two positions (mm from the anus) with about this many triangles."""
        lo = int(np.clip(start_mm, 0, len(self.along_mm) - 40))
        hi = int(np.clip(end_mm, lo + 30, len(self.along_mm) - 1))
        mean_radius = float(self.radius_mm[lo:hi].mean())
        area = 2 * np.pi * mean_radius * (hi - lo)
        edge = float(np.sqrt(area / (triangles / 2)))
        n_around = int(np.clip(2 * np.pi * mean_radius / edge, 60, 400))
        n_along = int((hi - lo) / edge)
        s = np.linspace(lo, hi, n_along)
        theta = np.linspace(0, 2 * np.pi, n_around, endpoint=False)
        radius, shift, fold_amount = self._wall(s, theta)
        frames = np.stack([np.interp(s, self.along_mm, self.frames[:, r, c]) for r in range(3) for c in range(3)], -1)
        frames = frames.reshape(-1, 3, 3)
        frames /= np.linalg.norm(frames, axis=2, keepdims=True)
        centre = np.stack([np.interp(s, self.along_mm, self.centre[:, k]) for k in range(3)], -1)
        ring = np.cos(theta)[None, :, None] * frames[:, None, 1] + np.sin(theta)[None, :, None] * frames[:, None, 2]
        points = centre[:, None] + radius[..., None] * ring + shift[..., None] * frames[:, None, 0]
        vertices = np.concatenate([points.reshape(-1, 3), centre[[0, -1]]])
        surface = Surface.wall(vertices, _tube_faces(n_along, n_around))
        curvature = np.interp(s, self.along_mm, self.curvature)
        inner = (frames[:, 1:] @ _turn_direction(frames[:, 0], s)[..., None])[..., 0]
        towards = np.arctan2(inner[:, 1], inner[:, 0])
        on_inner = np.abs((theta[None] - towards[:, None] + np.pi) % (2 * np.pi) - np.pi) < 1.0
        bend = (curvature > np.quantile(curvature, 0.7))[:, None] & on_inner
        body = np.ones((n_along, n_around), bool)
        body[: max(6, int(6 / edge))] = body[-max(6, int(6 / edge)) :] = False
        flat = lambda mask: np.flatnonzero((mask & body).ravel())
        places = {
            "fold": flat(fold_amount > 0.35),
            "bend": flat(bend & (fold_amount < 0.3)),
            "wall": flat(fold_amount < 0.2),
        }
        vertex_along = np.concatenate([np.repeat(s, n_around), s[[0, -1]]])
        names = tuple(self.segment_at(v) for v in s)
        return Stretch(surface, s, centre, frames, radius.mean(1), names, edge, places, vertex_along)

    def _wall(self, s: Array, theta: Array) -> tuple[Array, Array, Array]:
        """Radius, shift along the centreline (mm) and share of fold [0, 1], each [len(s), len(theta)]."""
        base = np.interp(s, self.along_mm, self.radius_mm)[:, None]
        triangle = np.interp(s, self.along_mm, self.triangle)[:, None]
        around = theta[None] - self.taenia_rad
        radius = base * (1 - triangle * np.cos(3 * around))
        fold_radius = np.zeros((len(s), len(theta)))
        shift = np.zeros_like(fold_radius)
        amount = np.zeros_like(fold_radius)
        starts = np.array(sorted({round(f.at_mm, 3) for f in self.folds}))
        # Haustra: the wall bulges between neighbouring rows of folds.
        if len(starts) > 2:
            left = np.searchsorted(starts, s).clip(1, len(starts) - 1)
            phase = (s - starts[left - 1]) / np.maximum(starts[left] - starts[left - 1], 6.0)
            radius = radius * (1 + 0.05 * np.sin(np.pi * np.clip(phase, 0, 1))[:, None])
        for fold in self.folds:
            reach = 4 * fold.thickness_mm + 6
            rows = np.flatnonzero(np.abs(s - fold.at_mm) < reach)
            if not len(rows):
                continue
            turn = (theta - fold.centre_rad + np.pi) % (2 * np.pi) - np.pi
            window = 1 / (1 + np.exp((np.abs(turn) - fold.width_rad) / 0.13))
            crest = fold.at_mm + fold.wave_mm * np.cos(1.7 * turn + fold.phase)
            ds = s[rows, None] - crest[None]
            half = fold.thickness_mm / 2
            # A thin crest on a wider foot: rims catch the light, flanks fall away softly.
            crest_part = np.exp(-(np.abs(ds / half) ** 2.2))
            foot = np.exp(-((ds / (2.4 * half)) ** 2))
            ridge = (0.65 * crest_part + 0.35 * foot) * window[None]
            scalloped = 1 + 0.12 * np.sin(5 * turn + fold.phase)[None]
            fold_radius[rows] = np.maximum(fold_radius[rows], fold.depth_mm * ridge * scalloped)
            shift[rows] += fold.lean * fold.depth_mm * ridge
            amount[rows] = np.maximum(amount[rows], ridge)
        radius = radius - fold_radius + self._noise(s, theta, base)
        return np.maximum(radius, 0.4 * base), shift, amount


class _WallNoise:
    """Smooth bumps of the wall: a sum of plane waves, periodic around the tube."""

    def __init__(self, rng: np.random.Generator, amplitude_mm: float) -> None:
        self.amplitude_mm = amplitude_mm
        count = 24
        self.around = rng.integers(0, 9, count)
        self.wavelength = rng.uniform(9, 60, count)
        self.phase = rng.uniform(0, 2 * np.pi, (2, count))

    def __call__(self, s: Array, theta: Array, base: Array) -> Array:
        total = np.zeros((len(s), len(theta)))
        for k, length, p, q in zip(self.around, self.wavelength, *self.phase, strict=True):
            total += np.cos(2 * np.pi * s / length + p)[:, None] * np.cos(k * theta + q)[None]
        return self.amplitude_mm * total / np.sqrt(len(self.around) / 4)


def _turn_direction(tangent: Array, s: Array) -> Array:
    towards = np.gradient(tangent, s, axis=0)
    return towards / np.maximum(np.linalg.norm(towards, axis=1, keepdims=True), 1e-12)


def _smooth(values: Array, sigma: float) -> Array:
    from scipy.ndimage import gaussian_filter1d

    return np.asarray(gaussian_filter1d(values, sigma, axis=0, mode="nearest"))


def _tube_faces(n_along: int, n_around: int) -> NDArray[np.int32]:
    """Triangles of a tube grid with both ends capped by a fan, looking inwards."""
    ids = np.arange(n_along * n_around).reshape(n_along, n_around)
    right = np.roll(ids, -1, 1)
    a, b, c, d = ids[:-1], right[:-1], right[1:], ids[1:]
    first, last = n_along * n_around, n_along * n_around + 1
    # Alternate the diagonal so that shading shows no preferred direction.
    odd = (np.add.outer(np.arange(n_along - 1), np.arange(n_around)) % 2).astype(bool)[..., None]
    one = np.where(odd, np.stack([a, d, b], -1), np.stack([a, c, b], -1))
    two = np.where(odd, np.stack([b, d, c], -1), np.stack([a, d, c], -1))
    caps = [
        np.stack([ids[0], right[0], np.full(n_around, first)], -1),
        np.stack([right[-1], ids[-1], np.full(n_around, last)], -1),
    ]
    return np.concatenate([one.reshape(-1, 3), two.reshape(-1, 3), *caps]).astype(np.int32)
