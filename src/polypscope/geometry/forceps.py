"""Millimetres from biopsy forceps: the two in-vivo procedures of PolypSense3D (section 3.3), in closed form.

*Proximal comparison*: open jaws (5 mm from tip to tip) held beside the polyp give mm per pixel, and the polyp's major
axis in pixels becomes mm. What it cannot see is where its error comes from. Jaws tilted out of the image plane by phi
look shorter, so the polyp is over-measured by 1 / cos(phi); jaws nearer than the polyp by dz at depth Z look longer, so
it is under-measured by (Z - dz) / Z. `proximal` turns stated uncertainties of both, and of the marking itself, into an
interval.

*Extension contact*: a straight shaft with marks every 5 mm touches the tissue. Mark i lies at P_i = A + s_i n on the
ray r_i, so r_i x (A + s_i n) = 0 for every mark: a homogeneous linear system in (A, n) whose null vector, scaled by
|n| = 1, is the shaft in mm. Three marks suffice; a known channel exit E replaces one (n = (E - A) / |E - A|). The
linear solution starts a Gauss–Newton refinement of the reprojection error; its covariance is the reported uncertainty.

The paper speaks of "a perspective rectification and regression model" in an appendix that is not public; the geometry
here is our own and needs no regression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polypscope.geometry import cameras
from polypscope.records import Camera, SizeEstimate
from polypscope.records.checks import positive
from polypscope.records.errors import RecordError

__all__ = ["JAW_MM", "MARK_SPACING_MM", "Contact", "extension", "offset_factor", "proximal", "tilt_factor"]

JAW_MM: Final = 5.0
MARK_SPACING_MM: Final = 5.0

Array = NDArray[np.float64]

_SAMPLES: Final = 4096
_GAUSS_NEWTON_STEPS: Final = 25


def tilt_factor(tilt_deg: float, depth_mm: float = np.inf, jaw_mm: float = JAW_MM) -> float:
    """By how much tilted jaws over-measure: 1/cos(phi), and its perspective form when the depth is given.

    With the jaws' middle on the axis at depth Z the tips lie at Z ± (jaw/2) sin(phi), which makes the picture of the
    jaws longer by 1 / (1 - (jaw sin(phi) / 2Z)^2).

    >>> round(tilt_factor(30.0), 3)
    1.155
    """
    phi = np.radians(tilt_deg)
    perspective = 1.0 - (jaw_mm * np.sin(phi) / (2.0 * depth_mm)) ** 2
    return float(perspective / np.cos(phi))


def offset_factor(nearer_mm: float, depth_mm: float) -> float:
    """By how much jaws `nearer_mm` in front of a polyp at `depth_mm` mis-measure it: (Z - dz) / Z.

    >>> offset_factor(2.0, 20.0)
    0.9
    """
    return (depth_mm - nearer_mm) / depth_mm


def proximal(
    tips_px: ArrayLike,
    axis_px: ArrayLike,
    *,
    short_axis_px: float | None = None,
    camera: Camera | None = None,
    jaw_mm: float = JAW_MM,
    mark_sigma_px: float = 1.0,
    outline_sigma_px: float = 1.0,
    tilt_sigma_deg: float = 10.0,
    depth_offset_sigma_mm: float = 1.0,
    depth_mm: float = 20.0,
    level: float = 0.9,
) -> SizeEstimate:
    """Size of a polyp by comparison with open jaws beside it.

    Parameters
    ----------
    tips_px
        The two jaw tips, (2, 2): column and row of each.
    axis_px
        The polyp's major axis: its two ends (2, 2), or its length in pixels.
    short_axis_px
        Length of the minor axis in pixels; without it the short axis is reported equal to the long one and flagged.
    camera
        Where given, distortion is taken out of tips and axis ends first (needs `axis_px` as ends).
    jaw_mm
        Distance between the open tips.
    mark_sigma_px, outline_sigma_px
        Standard deviation of a marked tip and of an end of the polyp's outline, per coordinate.
    tilt_sigma_deg
        Standard deviation of the jaws' tilt out of the image plane. Tilt only ever over-measures; so does the interval.
    depth_offset_sigma_mm, depth_mm
        Standard deviation of jaws' depth minus the polyp's, and the distance at which it is taken.
    level
        Coverage of the interval under these assumptions.

    >>> proximal([[100, 100], [200, 100]], 120.0).long_mm
    6.0
    """
    tips = np.asarray(tips_px, dtype=np.float64)
    if tips.shape != (2, 2) or not np.isfinite(tips).all():
        raise RecordError.of("forceps tips", expected="two points (x, y)", found=f"shape {tips.shape}: {tips.tolist()}")
    axis = np.asarray(axis_px, dtype=np.float64)
    if axis.shape not in ((), (2, 2)) or not np.isfinite(axis).all():
        raise RecordError.of("major axis", expected="a length in px or its two ends", found=f"{axis.tolist()}")
    if camera is not None:
        tips = _undistorted(camera, tips)
        if axis.shape == (2, 2):
            axis = _undistorted(camera, axis)
    jaw_px = float(np.linalg.norm(tips[0] - tips[1]))
    # Below three sigma of the marking, the scale could be anything.
    if jaw_px <= max(3.0 * np.sqrt(2.0) * mark_sigma_px, 1e-9):
        raise RecordError.of(
            "forceps tips",
            expected=f"tips further apart than the marking error ({3 * np.sqrt(2.0) * mark_sigma_px:.1f} px)",
            found=f"{jaw_px:.1f} px",
            hint="mark the two opened jaws",
        )
    length_px = positive("major axis", float(axis) if axis.shape == () else float(np.linalg.norm(axis[0] - axis[1])))
    size = length_px * positive("jaw_mm", jaw_mm) / jaw_px

    normal = _quasi_normal(4)
    tilt = np.radians(tilt_sigma_deg) * normal[0]
    nearer = depth_offset_sigma_mm * normal[1]
    # What the true size is, given what was measured: each error undone at a value it may have had.
    true = (
        size
        * np.cos(tilt)
        * (depth_mm / np.maximum(depth_mm - nearer, 0.1 * depth_mm))
        * (1.0 + np.sqrt(2.0) * mark_sigma_px / jaw_px * normal[2])
        * (1.0 + np.sqrt(2.0) * outline_sigma_px / length_px * normal[3])
    )
    low, high = np.quantile(np.maximum(true, 0.0), [(1 - level) / 2, (1 + level) / 2])
    flags = () if short_axis_px is not None else ("short_axis_unknown",)
    short = size if short_axis_px is None else min(short_axis_px * jaw_mm / jaw_px, size)
    return SizeEstimate(size, short, (float(low), float(high)), level, "forceps-proximal", flags)


@dataclass(frozen=True, slots=True)
class Contact:
    """Where a marked shaft touches the tissue.

    point_mm: contact point (x, y, z) in the camera frame; direction: unit vector along the shaft, tip backwards;
    interval_mm: of the depth z; residual_px: root mean square reprojection error of the marks.
    """

    point_mm: tuple[float, float, float]
    direction: tuple[float, float, float]
    sigma_mm: float
    interval_mm: tuple[float, float]
    level: float
    residual_px: float
    marks: int

    @property
    def depth_mm(self) -> float:
        """Depth of the contact point along the optical axis."""
        return self.point_mm[2]


def extension(
    marks_px: ArrayLike,
    camera: Camera,
    *,
    positions_mm: ArrayLike | None = None,
    exit_mm: ArrayLike | None = None,
    exit_sigma_mm: float = 0.3,
    mark_sigma_px: float = 1.0,
    level: float = 0.9,
) -> Contact:
    """Depth of the point that the tip of a marked straight shaft touches.

    Parameters
    ----------
    marks_px
        Pixels (n, 2) of the tip, first, and of the marks behind it, in order.
    camera
        The calibrated camera.
    positions_mm
        Where they lie on the shaft, from the tip: 0, 5, 10, ... unless given.
    exit_mm
        Where the shaft leaves the scope, in the camera frame, if known: then two points suffice.
    exit_sigma_mm
        How well that is known.
    mark_sigma_px
        Standard deviation of a mark, per coordinate.
    level
        Coverage of the depth's interval.
    """
    pixels = np.asarray(marks_px, dtype=np.float64)
    needed = 3 if exit_mm is None else 2
    if pixels.ndim != 2 or pixels.shape[1] != 2 or len(pixels) < needed or not np.isfinite(pixels).all():
        raise RecordError.of(
            "forceps marks",
            expected=f"at least {needed} points (x, y), the tip first"
            + ("" if exit_mm is not None else ", or two and the channel exit"),
            found=f"{len(np.atleast_1d(pixels))} values of shape {pixels.shape}",
        )
    positions: Array = np.arange(len(pixels), dtype=np.float64) * MARK_SPACING_MM
    if positions_mm is not None:
        positions = np.asarray(positions_mm, dtype=np.float64)
    if positions.shape != (len(pixels),) or not np.all(np.diff(positions) > 0):
        raise RecordError.of(
            "mark positions",
            expected=f"{len(pixels)} distances from the tip in mm, rising",
            found=str(positions.tolist()),
            hint="give the tip first, then the marks in order",
        )
    directions = cameras.unproject_rays(camera, pixels)
    if not np.isfinite(directions).all():
        raise RecordError.of("forceps marks", expected="pixels that the lens can see", found="a mark beyond its edge")
    _check_order(pixels, mark_sigma_px)
    exit_point = None if exit_mm is None else np.asarray(exit_mm, dtype=np.float64).reshape(3)
    start, along = _linear(directions, positions, exit_point)
    start, along, jacobian, residual = _refine(
        camera, pixels, positions, start, along, exit_point, mark_sigma_px, exit_sigma_mm
    )
    try:
        covariance = np.linalg.inv(jacobian.T @ jacobian)
    except np.linalg.LinAlgError:
        covariance = np.full((5, 5), np.inf)
    sigma = float(np.sqrt(max(covariance[2, 2], 0.0)))
    if start[2] <= 0 or not np.isfinite(sigma) or sigma > start[2]:
        raise RecordError.of(
            "forceps marks",
            expected="a shaft whose marks determine the depth",
            found="marks that fit almost any depth (a shaft along the line of sight, or marks too close together)",
            hint="mark more gradations or another frame",
        )
    # The depth's error is closer to log-normal than to normal when it is large; the ratio keeps the interval positive.
    spread = _normal_quantile(level) * sigma / float(start[2])
    interval = (float(start[2] * np.exp(-spread)), float(start[2] * np.exp(spread)))
    return Contact(_triple(start), _triple(along), sigma, interval, level, residual, len(pixels))


def _linear(directions: Array, positions: Array, exit_point: Array | None) -> tuple[Array, Array]:
    """The shaft (A, n) as the null vector of r_i x (A + s_i n) = 0, in mm through |n| = 1."""
    if exit_point is not None:
        return _from_exit(directions, positions, exit_point)
    scale = float(positions[-1])
    rows = []
    for ray, s in zip(directions, positions / scale, strict=True):
        cross = np.array([[0.0, -ray[2], ray[1]], [ray[2], 0.0, -ray[0]], [-ray[1], ray[0], 0.0]])
        rows.append(np.hstack([cross, s * cross]))
    null = np.linalg.svd(np.vstack(rows))[2][-1]
    length = float(np.linalg.norm(null[3:])) / scale
    if length < 1e-9:
        raise RecordError.of(
            "forceps marks",
            expected="marks spread along a shaft",
            found="marks at one place",
            hint="mark the tip and the gradations behind it",
        )
    start, along = null[:3] / length, null[3:] / (length * scale)
    return (-start, -along) if start @ directions[0] < 0 else (start, along)


def _from_exit(directions: Array, positions: Array, exit_point: Array) -> tuple[Array, Array]:
    """The tip depth at which the shaft from tip to channel exit passes closest to all marks' rays."""
    depths = np.geomspace(2.0, 300.0, 3000)
    tips = depths[:, None] * directions[0]
    along = exit_point - tips
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    marks = tips[:, None] + (positions - positions[0])[:, None] * along[:, None]
    marks /= np.linalg.norm(marks, axis=-1, keepdims=True)
    best = int(np.argmax(np.einsum("dmk,mk->d", marks, directions)))
    return tips[best] - positions[0] * along[best], along[best]


def _refine(
    camera: Camera,
    pixels: Array,
    positions: Array,
    start: Array,
    along: Array,
    exit_point: Array | None,
    mark_sigma_px: float,
    exit_sigma_mm: float,
) -> tuple[Array, Array, Array, float]:
    """Gauss–Newton on the reprojection error over A (3) and the direction (2, tangent plane of n)."""

    def residuals(a: Array, n: Array) -> Array:
        out = ((cameras.project(camera, a + positions[:, None] * n) - pixels) / mark_sigma_px).ravel()
        if exit_point is not None:
            off = exit_point - a
            out = np.concatenate([out, (off - (off @ n) * n) / exit_sigma_mm])
        return out

    current = residuals(start, along)
    cost, damping = float(current @ current), 1e-3
    jacobian = np.zeros((len(current), 5))
    for _ in range(_GAUSS_NEWTON_STEPS):
        e1, e2 = _tangents(along)
        step_mm = 1e-5 * max(float(np.linalg.norm(start)), 1.0)
        for k in range(3):
            shift = np.zeros(3)
            shift[k] = step_mm
            jacobian[:, k] = (residuals(start + shift, along) - residuals(start - shift, along)) / (2 * step_mm)
        for k, e in enumerate((e1, e2)):
            jacobian[:, 3 + k] = (
                residuals(start, _unit(along + 1e-6 * e)) - residuals(start, _unit(along - 1e-6 * e))
            ) / 2e-6
        normal = jacobian.T @ jacobian
        if not np.isfinite(normal).all():
            break
        step = -np.linalg.lstsq(normal + damping * np.diag(np.diag(normal)), jacobian.T @ current, rcond=None)[0]
        a, n = start + step[:3], _unit(along + step[3] * e1 + step[4] * e2)
        new = residuals(a, n)
        new_cost = float(new @ new)
        if np.isfinite(new_cost) and new_cost <= cost:
            converged = cost - new_cost < 1e-10 * (1.0 + cost)
            start, along, current, cost, damping = a, n, new, new_cost, damping * 0.2
            if converged:
                break
        else:
            damping *= 10.0
    marks_only = current[: 2 * len(pixels)] * mark_sigma_px
    return start, along, jacobian, float(np.sqrt(np.mean(marks_only**2) * 2.0))


def _check_order(pixels: Array, sigma_px: float) -> None:
    """Marks of a straight shaft follow one another in the picture; a step back by more than noise is a mistake."""
    span = pixels[-1] - pixels[0]
    length = float(np.linalg.norm(span))
    steps = np.diff(pixels, axis=0) @ (span / max(length, 1e-9))
    if length < 3.0 * sigma_px or (steps <= -3.0 * sigma_px).any():
        index = int(np.argmin(steps))
        raise RecordError.of(
            "forceps marks",
            expected="marks in order from the tip backwards, spread along the shaft",
            found=f"mark {index + 2} at {pixels[index + 1].tolist()} does not follow mark {index + 1}",
            hint="mark the tip first, then each gradation behind it",
        )
    away = pixels - pixels[0]
    off_line = np.abs(away[:, 0] * span[1] - away[:, 1] * span[0]) / max(length, 1e-9)
    # Distortion bends a straight shaft slightly; a kink of a tenth of its length is a misplaced mark.
    if float(off_line.max()) > 0.1 * length + 4.0 * sigma_px:
        index = int(np.argmax(off_line))
        raise RecordError.of(
            "forceps marks",
            expected="marks along one straight shaft",
            found=f"mark {index + 1} lies {off_line[index]:.1f} px beside it",
            hint="check that mark, or choose a frame in which the shaft is not bent",
        )


def _undistorted(camera: Camera, pixels: Array) -> Array:
    directions = cameras.unproject_rays(camera, pixels)
    return np.asarray(directions[:, :2] / directions[:, 2:] * np.array([camera.fx, camera.fy]))


def _quasi_normal(dimensions: int) -> Array:
    from scipy.special import ndtri
    from scipy.stats import qmc

    return np.asarray(ndtri(qmc.Sobol(dimensions, seed=0).random(_SAMPLES).T))


def _normal_quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


def _tangents(n: Array) -> tuple[Array, Array]:
    other = np.array([1.0, 0.0, 0.0]) if abs(n[0]) < 0.9 else np.array([0.0, 1.0, 0.0])
    e1 = _unit(np.cross(n, other))
    return e1, np.cross(n, e1)


def _unit(v: Array) -> Array:
    return np.asarray(v / np.linalg.norm(v))


def _triple(v: Array) -> tuple[float, float, float]:
    return float(v[0]), float(v[1]), float(v[2])
