"""Parametric polyps: thirty named models over 1.79-20.52 mm, and any number of sampled ones.

A polyp is a disc bent into shape: rings run from the wall, over a skirt that follows it, up a profile (radius, height)
to the apex. The profile depends on the Paris class; lobes, elongation, tilt and surface noise make each one its own.
The size label is the largest 3D extent of the part above the wall, and it is exact because the polyp is scaled until
its mesh, as it stands in the wall, has that extent.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from polypscope.records.errors import UsageError
from polypscope.simulator.surface import Chart, Placement, Surface, chart_at, sew

__all__ = ["MODELS", "PARIS_CLASSES", "PolypModel", "extent_mm", "grow", "sample_model", "sew_polyp"]

Array = NDArray[np.float64]

PARIS_CLASSES = ("0-Ip", "0-Isp", "0-Is", "0-IIa", "0-IIb", "0-IIa+c")
_COMMON = (0.12, 0.14, 0.38, 0.24, 0.06, 0.06)
SIZE_RANGE_MM = (1.0, 40.0)


@dataclass(frozen=True)
class PolypModel:
    """The shape of a polyp, apart from where it stands.

    Attributes
    ----------
    name: a stable name, written into the truth.
    paris: Paris class.
    size_mm: largest 3D extent above the wall.
    seed: fixes everything that is random about the shape.
    """

    name: str
    paris: str
    size_mm: float
    seed: int

    def __post_init__(self) -> None:
        if self.paris not in PARIS_CLASSES:
            raise UsageError(f"paris: expected one of {', '.join(PARIS_CLASSES)}, found {self.paris!r}.")
        low, high = SIZE_RANGE_MM
        if not low <= self.size_mm <= high:
            raise UsageError(f"size_mm: expected {low:g} to {high:g} mm, found {self.size_mm:g}; give millimetres.")


def _thirty() -> tuple[PolypModel, ...]:
    small = [1.79, 2.31, 2.84, 3.20, 3.66, 4.12, 4.58, 5.05, 5.51, 6.07, 6.72, 7.38, 8.11, 8.90, 9.64]
    middle = [10.20, 10.83, 11.47, 12.15, 12.90, 13.58, 14.33, 15.10, 15.94, 16.77, 17.62, 18.55, 19.48]
    large = [20.08, 20.52]
    paris = [
        *("0-Is", "0-IIa", "0-Is", "0-IIa", "0-Is", "0-IIb", "0-Is", "0-IIa", "0-Isp", "0-Is"),
        *("0-IIa", "0-Ip", "0-Is", "0-IIa+c", "0-Isp"),
        *("0-Is", "0-Ip", "0-IIa", "0-IIa+c", "0-Isp", "0-Ip", "0-IIb", "0-IIa", "0-Is", "0-Ip", "0-IIa", "0-IIa+c"),
        *("0-Ip", "0-IIa", "0-Is"),
    ]
    sizes = small + middle + large
    return tuple(
        PolypModel(f"model-{i + 1:02d}", p, s, 9000 + i) for i, (p, s) in enumerate(zip(paris, sizes, strict=True))
    )


MODELS = _thirty()
"""The thirty polyps of the virtual set: 15 below 10 mm, 13 from 10 to 20 mm, 2 above."""


def sample_model(
    rng: np.random.Generator, size_range_mm: tuple[float, float] = (1.79, 20.52), name: str = ""
) -> PolypModel:
    """A new polyp: log-uniform size, Paris class by how common it is (stalks only from 4 mm on)."""
    low, high = size_range_mm
    size = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    weights = np.array(_COMMON)
    if size < 4.0:
        weights[[0, 1, 5]] = 0.0
    paris = PARIS_CLASSES[int(rng.choice(6, p=weights / weights.sum()))]
    seed = int(rng.integers(2**31))
    return PolypModel(name or f"sampled-{seed}", paris, round(size, 2), seed)


def _profile(paris: str, rng: np.random.Generator) -> tuple[Array, float]:
    """Polyline [n, 2] of (radius, height) from the foot to the apex, head radius about 1, and the foot's radius."""
    angle = np.linspace(0.0, 1.0, 40)
    if paris in ("0-IIa", "0-IIb", "0-IIa+c"):
        height = {"0-IIa": rng.uniform(0.22, 0.5), "0-IIb": rng.uniform(0.05, 0.1), "0-IIa+c": rng.uniform(0.22, 0.4)}
        power = rng.uniform(2.2, 4.5)
        t = np.sin(angle * np.pi / 2)[::-1]
        h = height[paris] * (1 - t**power) ** rng.uniform(0.55, 0.9)
        if paris == "0-IIa+c":
            h *= 1 - rng.uniform(0.45, 0.75) * np.exp(-((t / rng.uniform(0.35, 0.5)) ** 2))
        return np.stack([t, h], -1), 1.0
    flat = rng.uniform(0.7, 1.1)
    # Height of the head's centre over the wall, in head radii: above zero the head overhangs its foot.
    lift = {"0-Is": rng.uniform(-0.5, 0.2), "0-Isp": rng.uniform(0.4, 0.72), "0-Ip": rng.uniform(0.84, 0.92)}[paris]
    start = -np.arcsin(np.clip(lift, -0.95, 0.95))
    phi = start + angle * (np.pi / 2 - start)
    power = rng.uniform(0.85, 1.0)
    r = np.abs(np.cos(phi)) ** power
    h = np.sin(phi) - np.sin(start)
    line = np.stack([r, h * flat], -1)
    foot = float(r[0])
    if paris == "0-Ip":
        stalk = rng.uniform(0.5, 1.6)
        waist = foot * rng.uniform(0.75, 1.0)
        y = np.linspace(0, stalk, 24)
        r_stalk = waist + (foot * 1.25 - waist) * np.exp(-y / (0.25 * stalk)) + (foot - waist) * (y / stalk) ** 4
        line = np.concatenate([np.stack([r_stalk, y], -1)[:-1], line + np.array([0, stalk])])
        foot = float(r_stalk[0])
    return line, foot


def _resample(line: Array, count: int) -> Array:
    along = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
    t = np.linspace(0, along[-1], count)
    return np.stack([np.interp(t, along, line[:, 0]), np.interp(t, along, line[:, 1])], -1)


@dataclass(frozen=True)
class _Shape:
    """A polyp of head radius about 1 over a flat wall, before it is fitted to the real one."""

    x: Array
    y: Array
    h: Array  # each [rings, segments]
    first_polyp_ring: int
    apex_height: float
    extent: float


@lru_cache(maxsize=64)
def _shape(model: PolypModel) -> _Shape:
    rng = np.random.default_rng(model.seed)
    line, foot = _profile(model.paris, rng)
    skirt = foot + max(0.18, rng.uniform(0.16, 0.4) * foot)
    line = np.concatenate([np.stack([np.linspace(skirt, foot, 8), np.zeros(8)], -1)[:-1], line])
    length = float(np.linalg.norm(np.diff(line, axis=0), axis=1).sum())
    step_mm = 0.16 + 0.018 * model.size_mm
    rings = int(np.clip(length * model.size_mm / 2 / step_mm, 18, 56))
    segments = int(np.clip(np.pi * model.size_mm / (1.1 * step_mm), 32, 128))
    fine = _resample(line, 400)
    # Rounding the polyline is what gives the foot its fillet: a polyp grows out of the wall.
    fillet = rng.uniform(10, 34) if model.paris != "0-IIb" else 14.0
    padded = np.pad(fine, ((60, 60), (0, 0)), mode="reflect", reflect_type="odd")
    kernel = np.exp(-0.5 * (np.arange(-50, 51) / fillet) ** 2)
    kernel /= kernel.sum()
    smooth = np.stack([np.convolve(padded[:, k], kernel, "same")[60:-60] for k in range(2)], -1)
    smooth[:, 1] = np.where(np.arange(400) < 1, 0.0, np.maximum(smooth[:, 1], 0.0))
    smooth[-1, 0] = 0.0
    smooth[:, 0] = np.maximum(smooth[:, 0], 0.0)
    profile = _resample(smooth, rings + 1)[:-1]
    rise = 0.04 * smooth[:, 1].max()
    first = int(np.argmax(profile[:, 1] > rise))
    phi = np.linspace(0, 2 * np.pi, segments, endpoint=False)
    lobes = np.ones((rings, segments))
    up = np.clip(np.arange(rings) / max(first, 1), 0, 1)[:, None]
    for k in range(2, 7):
        amplitude = rng.normal(0, 0.05 if model.paris.startswith("0-II") else 0.028) / np.sqrt(k - 1)
        lobes += amplitude * np.cos(k * phi + rng.uniform(0, 2 * np.pi))
    knob = np.zeros((rings, segments))
    lobed = rng.random() < (0.5 if model.size_mm > 6 else 0.25)
    t = np.linspace(0, 1, rings)[:, None]
    for _ in range(rng.integers(8, 22)):
        at, where, width = rng.uniform(0.2, 1.0), rng.uniform(0, 2 * np.pi), rng.uniform(0.09, 0.26)
        turn = (phi - where + np.pi) % (2 * np.pi) - np.pi
        bump = np.exp(-(((t - at) / width) ** 2) - ((turn * np.maximum(profile[:, :1], 0.1)) / (2.2 * width)) ** 2)
        knob += rng.uniform(0.3, 1.0) * bump
    strength = (rng.uniform(0.1, 0.2) if lobed else rng.uniform(0.03, 0.12)) * (0.12 if model.paris == "0-IIb" else 1.0)
    strength *= 0.5 if model.paris in ("0-IIa", "0-IIa+c") else 1.0
    # Knobs fade out towards the pole, where the rings are too small to carry them without a point.
    knob *= strength * up * (1 - np.exp(-((profile[:, :1] / 0.4) ** 2)))
    tangent = np.gradient(profile, axis=0)
    normal = np.stack([-tangent[:, 1], tangent[:, 0]], -1)
    normal *= -1.0 / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-9)
    radius = profile[:, :1] * lobes + np.abs(normal[:, :1]) * knob * np.sign(profile[:, :1] + 1e-9)
    height = profile[:, 1:] + np.abs(normal[:, 1:]) * knob
    # Knobs must close up at the pole, or the last ring would no longer be round the apex.
    radius *= np.minimum(1.0, 0.2 + 0.8 * (profile[:, :1] / 0.15))
    stretch = rng.uniform(1.0, 1.8 if model.paris.startswith("0-II") else 1.45)
    turn = rng.uniform(0, np.pi)
    x0, y0 = radius * np.cos(phi) * stretch, radius * np.sin(phi)
    x = x0 * np.cos(turn) - y0 * np.sin(turn)
    y = x0 * np.sin(turn) + y0 * np.cos(turn)
    lean = rng.uniform(0, {"0-Ip": 0.8, "0-Isp": 0.35, "0-Is": 0.2}.get(model.paris, 0.0))
    way = rng.uniform(0, 2 * np.pi)
    top = float(height.max())
    bend = lean * (height / top) ** 1.5 * top
    apex = float(height[-1].mean() + (0.0 if model.paris == "0-IIa+c" else 0.002 * top))
    x, y = x + bend * np.cos(way), y + bend * np.sin(way)
    extent = extent_mm(np.stack([x, y, height], -1)[first:].reshape(-1, 3))
    return _Shape(x, y, height, first, apex, extent)


def extent_mm(points: Array) -> float:
    """Largest distance between any two points [n, 3]."""
    from scipy.spatial import ConvexHull, QhullError

    if len(points) > 40:
        # Points in one plane have no hull; their pairwise distances serve as they are.
        with contextlib.suppress(QhullError):
            points = points[ConvexHull(points).vertices]
    return float(np.sqrt(_largest_square(np.ascontiguousarray(points, np.float64))))


@njit(cache=True)
def _largest_square(points):
    best = 0.0
    for i in range(points.shape[0]):
        for j in range(i):
            x, y, z = points[i, 0] - points[j, 0], points[i, 1] - points[j, 1], points[i, 2] - points[j, 2]
            best = max(best, x * x + y * y + z * z)
    return best


def grow(model: PolypModel, chart: Chart) -> Placement | None:
    """Fit the polyp to the wall of the chart so that its extent is `size_mm`; None where the wall does not serve."""
    shape = _shape(model)
    wall = chart.height
    scale = model.size_mm / shape.extent
    centre = float(wall(np.zeros(1), np.zeros(1))[0])
    previous: tuple[float, float] | None = None
    for _ in range(14):
        x, y, h = shape.x * scale, shape.y * scale, shape.h * scale
        base = wall(x, y)
        # Low parts follow the wall, high parts keep the polyp's own shape.
        follow = np.exp(-((h / (0.35 * scale + 1e-9)) ** 2))
        lost = ~np.isfinite(base)
        if np.any(lost & (follow > 0.05)) or not np.isfinite(centre):
            return None
        base = np.where(lost, centre, base)
        w = h + follow * base + (1 - follow) * centre
        rings = np.stack([x, y, w], -1)
        peak = shape.apex_height * scale
        f = float(np.exp(-((peak / (0.35 * scale)) ** 2)))
        last = rings[-1].mean(0)
        under = float(wall(last[:1], last[1:2])[0])
        apex = np.array([last[0], last[1], peak + f * (under if np.isfinite(under) else centre) + (1 - f) * centre])
        above = np.concatenate([rings[shape.first_polyp_ring :].reshape(-1, 3), apex[None]])
        found = extent_mm(above)
        if abs(found - model.size_mm) < 1e-4:
            return Placement(rings, apex, shape.first_polyp_ring)
        # Secant step on the logarithms; the extent is nearly, but not quite, proportional to the scale.
        slope = 1.0
        if previous is not None and abs(np.log(scale / previous[0])) > 1e-9:
            slope = float(np.clip(np.log(found / previous[1]) / np.log(scale / previous[0]), 0.4, 2.0))
        previous = (scale, found)
        scale *= (model.size_mm / found) ** (1 / slope)
    return None


def sew_polyp(
    surface: Surface, normals: NDArray[np.float32], model: PolypModel, seed_vertex: int, label: int, edge_mm: float
) -> tuple[Surface, Array] | None:
    """Let the polyp grow at a vertex of the wall; returns the new surface and the apex [3] in mm, or None.

    None means that the place does not serve (the wall turns away under the polyp, or another polyp is there).
    """
    shape = _shape(model)
    foot = float(np.hypot(shape.x[0], shape.y[0]).max()) * model.size_mm / shape.extent
    reach = 1.06 * foot + 2.2 * edge_mm
    chart = chart_at(surface, normals, seed_vertex, reach)
    if chart is None:
        return None
    patch = grow(model, chart)
    if patch is None:
        return None
    sewn = sew(surface, chart, patch, label, gap_mm=0.8 * edge_mm)
    return None if sewn is None else (sewn, chart.to_world(*patch.apex))
