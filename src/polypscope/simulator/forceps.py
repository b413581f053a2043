"""Biopsy forceps as real geometry with truth: the two ways in which they serve as a ruler.

proximal: fully open jaws, 5 mm from tip to tip, held beside the polyp. The line between the tips is turned out of the
image plane by a stated tilt, and its middle is nearer to the camera than the polyp's apex by a stated offset.
contact: a straight shaft with marks every 5 mm whose tip touches the polyp's apex. Positions are those of the shaft's
axis: P_i = A + 5 i · n, with A the apex.

The shaft leaves the scope at the working channel, a few millimetres beside the lens. Everything is in the camera frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polypscope.simulator.renderer import Hits, Lens, cast
from polypscope.simulator.scope import Lumen
from polypscope.simulator.surface import vertex_normals
from polypscope.simulator.tissue import Look

__all__ = ["JAW_SPAN_MM", "MARK_STEP_MM", "Forceps", "ForcepsView", "draw_forceps"]

Array = NDArray[np.float64]
Kind = Literal["proximal", "contact"]

JAW_SPAN_MM = 5.0
MARK_STEP_MM = 5.0
SHAFT_RADIUS_MM = 0.9
MARK_WIDTH_MM = 0.7
_STEEL, _SHEATH, _MARK = (0.3, 0.3, 0.32), (0.4, 0.4, 0.38), (0.03, 0.03, 0.05)


@dataclass(frozen=True)
class ForcepsView:
    """The forceps in one frame: mesh in the camera frame, colours per face, marked points by name, and the point
    from which the shaft (or, for open jaws, both jaws) runs towards them."""

    vertices: Array
    faces: NDArray[np.int32]
    colours: NDArray[np.float32]
    points: dict[str, Array]
    root: Array


@dataclass(frozen=True)
class Forceps:
    """One pair of forceps for a sequence.

    `tilt_deg` and `offset_mm` are the stated errors of the proximal comparison; both are 0 in the contact method.
    """

    kind: Kind
    tilt_deg: float
    offset_mm: float
    side_rad: float
    channel: Array

    @classmethod
    def sample(cls, rng: np.random.Generator, kind: Kind) -> Forceps:
        """Tilt up to ±30°, offset from -2 to 4 mm (positive: nearer than the polyp), any side."""
        tilt = float(np.clip(rng.normal(0, 12), -30, 30)) if kind == "proximal" else 0.0
        offset = float(np.clip(rng.normal(0.8, 1.2), -2, 4)) if kind == "proximal" else 0.0
        angle = rng.uniform(0, 2 * np.pi)
        away = rng.uniform(5.0, 7.0)
        channel = np.array([away * np.cos(angle), away * np.sin(angle), 0.0])
        return cls(kind, round(tilt, 3), round(offset, 3), float(rng.uniform(0, 2 * np.pi)), channel)

    def truth(self) -> dict[str, Any]:
        """What `sequence.json` says of them."""
        facts: dict[str, Any] = {"kind": self.kind, "channel_mm": [round(float(v), 4) for v in self.channel]}
        if self.kind == "proximal":
            return {**facts, "span_mm": JAW_SPAN_MM, "tilt_deg": self.tilt_deg, "depth_offset_mm": self.offset_mm}
        return {**facts, "mark_step_mm": MARK_STEP_MM}

    def at(self, pose: Array, apex: Array, size_mm: float, lumen: Lumen) -> ForcepsView | None:
        """The forceps as seen from `pose`, or None where they have no room or the polyp is out of reach."""
        target = pose[:3, :3].T @ (apex - pose[:3, 3])
        if not 6.0 < target[2] < 45.0 or np.hypot(target[0], target[1]) > 0.75 * target[2]:
            return None
        return (
            self._contact(target, pose, lumen) if self.kind == "contact" else self._open(target, pose, size_mm, lumen)
        )

    def _contact(self, target: Array, pose: Array, lumen: Lumen) -> ForcepsView | None:
        back = self.channel - target
        length = float(np.linalg.norm(back))
        n = back / length
        probe = target + np.linspace(1.5, max(length - 2, 2.0), 20)[:, None] * n
        if not _has_room(probe, pose, lumen, 0.3):
            return None
        marks = np.arange(1, int((length - 3.0) / MARK_STEP_MM) + 1)
        edges, colours = [0.0, 0.35], [_STEEL]
        for i in marks:
            at = MARK_STEP_MM * i
            edges += [at - MARK_WIDTH_MM / 2, at + MARK_WIDTH_MM / 2]
            colours += [_SHEATH, _MARK]
        edges.append(length)
        colours.append(_SHEATH)
        radii = [0.25, *([SHAFT_RADIUS_MM] * (len(edges) - 1))]
        mesh = _tube([target + e * n for e in edges], radii, colours)
        points = {"tip": target} | {f"mark{i}": target + MARK_STEP_MM * i * n for i in marks}
        return ForcepsView(*mesh, points, self.channel)

    def _open(self, target: Array, pose: Array, size_mm: float, lumen: Lumen) -> ForcepsView | None:
        tilt = np.radians(self.tilt_deg)
        for turn in np.radians([0, 40, -40, 90, -90, 140, -140, 180]):
            side = self.side_rad + turn
            aside = np.array([np.cos(side), np.sin(side), 0.0])
            middle = target + (size_mm / 2 + 2.0) * aside
            middle[2] = target[2] - self.offset_mm
            along = np.array([-np.sin(side), np.cos(side), 0.0]) * np.cos(tilt) + np.array([0, 0, np.sin(tilt)])
            tips = middle + np.array([[0.5], [-0.5]]) * JAW_SPAN_MM * along
            back = self.channel - middle
            back /= np.linalg.norm(back)
            hinge = middle + 5.5 * back
            probe = np.concatenate(
                [tips, [middle, hinge], hinge + np.linspace(0, 1, 8)[:, None] * (self.channel - hinge)]
            )
            if tips[:, 2].min() < 3 or not _has_room(probe[:-1], pose, lumen, 0.25):
                continue
            parts = [_tube([hinge + 1.5 * back, hinge, self.channel], [0.8, 0.9, 0.9], [_STEEL, _SHEATH])]
            for tip in tips:
                t = np.linspace(0, 1, 9)[:, None]
                outward = (tip - middle) / np.linalg.norm(tip - middle)
                spine = hinge + t * (tip - hinge) + 0.9 * outward * 4 * t * (1 - t) * (1 - 0.4 * t)
                radii = 0.85 * np.sqrt(np.maximum(1 - t[:, 0] ** 2, 0)) * (0.6 + 0.4 * np.sin(np.pi * t[:, 0])) + 0.06
                parts.append(_tube(list(spine), list(radii), [_STEEL] * 8))
            return ForcepsView(*_merge(parts), {"tip_a": tips[0], "tip_b": tips[1]}, hinge)
        return None


def _has_room(points: Array, pose: Array, lumen: Lumen, least_mm: float) -> bool:
    distance, _ = lumen.clearance(points @ pose[:3, :3].T + pose[:3, 3])
    return bool(distance.min() > least_mm)


_Mesh = tuple[Array, NDArray[np.int32], NDArray[np.float32]]


def _tube(spine: list[Array], radii: list[float], colours: list[tuple[float, float, float]], around: int = 20) -> _Mesh:
    """A tube through the points, one colour per piece, closed at the first end."""
    points = np.array(spine)
    tangent = np.gradient(points, axis=0)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    helper = np.eye(3)[np.argmin(np.abs(tangent[0]))]
    e1 = np.cross(tangent, helper)
    e1 /= np.linalg.norm(e1, axis=1, keepdims=True)
    e2 = np.cross(tangent, e1)
    phi = np.linspace(0, 2 * np.pi, around, endpoint=False)
    ring = np.cos(phi)[None, :, None] * e1[:, None] + np.sin(phi)[None, :, None] * e2[:, None]
    vertices, faces, shades = [], [], []
    base = 0
    # Each piece has its own two rings, so that colours meet in a sharp edge.
    for k, colour in enumerate(colours):
        for end in (k, k + 1):
            vertices.append(points[end] + radii[end] * ring[end])
        a, b = base + np.arange(around), base + np.roll(np.arange(around), -1)
        faces += [np.stack([a, b, b + around], -1), np.stack([a, b + around, a + around], -1)]
        shades += [np.tile(colour, (2 * around, 1))]
        base += 2 * around
    vertices.append(points[:1])
    faces.append(np.stack([np.roll(np.arange(around), -1), np.arange(around), np.full(around, base)], -1))
    shades.append(np.tile(colours[0], (around, 1)))
    return np.concatenate(vertices), np.concatenate(faces).astype(np.int32), np.concatenate(shades).astype(np.float32)


def _merge(parts: list[_Mesh]) -> _Mesh:
    offsets = np.cumsum([0] + [len(p[0]) for p in parts])
    faces = [p[1] + o for p, o in zip(parts, offsets, strict=False)]
    return np.concatenate([p[0] for p in parts]), np.concatenate(faces), np.concatenate([p[2] for p in parts])


def draw_forceps(
    view: ForcepsView, hits: Hits, lens: Lens, light: NDArray[np.float32], look: Look, first_id: int
) -> tuple[NDArray[np.bool_], tuple[dict[str, Any], ...]]:
    """Draw into `hits` and `light`; returns where they cover the picture and the rows of their marked points."""
    cast(hits, lens, view.vertices, view.faces, np.eye(4), first_id, two_sided=True)
    covered = hits.face >= first_id
    if covered.any():
        light[covered] = _metal(view, hits, lens, look, covered, first_id)
    rows = []
    depth = hits.distance * lens.ray_z()
    kind = "contact" if "tip" in view.points else "proximal"
    for name, point in view.points.items():
        x, y = _project(lens, point)
        column, row = round(x), round(y)
        inside = 0 <= column < depth.shape[1] and 0 <= row < depth.shape[0]
        # The axis is inside the shaft, so the ray meets the shaft's own surface before it: earlier the more it is
        # foreshortened. Anything nearer than that hides the point.
        along = point - view.root
        slant = float(np.linalg.norm(np.cross(along, point)) / (np.linalg.norm(along) * np.linalg.norm(point)))
        own_mm = SHAFT_RADIUS_MM / max(slant, 0.05) + 0.5
        seen = inside and bool(depth[row, column] > point[2] - own_mm)
        seen_x, seen_y = _project(lens, _towards_eye(point, along)) if name.startswith("mark") else (x, y)
        rows.append(
            {
                "kind": kind,
                "point": name,
                "x_px": round(x, 4),
                "y_px": round(y, 4),
                "x_seen_px": round(seen_x, 4),
                "y_seen_px": round(seen_y, 4),
                "x_mm": round(float(point[0]), 5),
                "y_mm": round(float(point[1]), 5),
                "z_mm": round(float(point[2]), 5),
                "visible": int(seen),
            }
        )
    return covered, tuple(rows)


def _towards_eye(point: Array, along: Array) -> Array:
    """Where the painted ring round an axis point is nearest to the eye: that is what a person marks in the picture."""
    n = along / np.linalg.norm(along)
    facing = -(point - (point @ n) * n)
    return point + SHAFT_RADIUS_MM * facing / max(float(np.linalg.norm(facing)), 1e-9)


def _project(lens: Lens, point: Array) -> tuple[float, float]:
    from polypscope.geometry.cameras import project

    u, v = np.asarray(project(lens.camera, point[None]))[0]
    return float(u), float(v)


def _metal(
    view: ForcepsView, hits: Hits, lens: Lens, look: Look, covered: NDArray[np.bool_], first_id: int
) -> NDArray[np.float32]:
    """Light [n, 3] of the covered pixels: dull steel with a highlight."""
    face = view.faces[hits.face[covered] - first_id]
    rays = lens.rays[covered]
    corners = view.vertices[face]
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    weights = np.stack([(np.cross(p, q) * rays).sum(1) for p, q in ((b, c), (c, a), (a, b))], -1)
    weights /= weights.sum(1, keepdims=True)
    normals = vertex_normals(view.vertices, view.faces).astype(np.float64)
    normal = (weights[..., None] * normals[face]).sum(1)
    position = rays * hits.distance[covered][:, None]
    towards = -position / np.linalg.norm(position, axis=1, keepdims=True)
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-9)
    normal *= np.where((normal * towards).sum(1, keepdims=True) < 0, -1.0, 1.0)
    colour = view.colours[hits.face[covered] - first_id].astype(np.float64)
    total = np.zeros_like(colour)
    for x, y, z, power in look.lights:
        to_lamp = np.array([x, y, z]) - position
        square = (to_lamp**2).sum(1, keepdims=True)
        to_lamp /= np.sqrt(square)
        # A scope's light is weak right before its tip, because the lamps sit round the lens.
        strength = power * 400 / (square + 60)
        lambert = np.maximum((normal * to_lamp).sum(1, keepdims=True), 0)
        half = to_lamp + towards
        half /= np.linalg.norm(half, axis=1, keepdims=True)
        shine = np.maximum((normal * half).sum(1, keepdims=True), 0) ** 60
        total += strength * (lambert * colour / np.pi + 0.5 * shine * colour)
    return total.astype(np.float32)
