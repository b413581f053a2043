"""Camera calibration by Zhang's method, with the honesty that a result for metrology needs.

OpenCV gives the start (Zhang's closed form for a pinhole, a scan over focal lengths for a fisheye); intrinsics and all
poses are then refined together with the camera model of `geometry.cameras`, so that what is calibrated is what is used.
Views that fit far worse than the others are dropped and named. Standard deviations come from the normal equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.geometry import cameras
from polypscope.pipeline.boards import Sighting
from polypscope.records import Camera
from polypscope.records.errors import InputError, UsageError

__all__ = ["Calibration", "View", "calibrate", "undistort", "undistorted_camera"]

Array = NDArray[np.float64]

MIN_VIEWS: Final = 3
_BAD_RATIO: Final = 2.5
_GRID: Final = 8


@dataclass(frozen=True, eq=False)
class View:
    """One picture in the calibration: its error, and whether it was used and if not, why."""

    name: str
    error_px: float
    used: bool
    reason: str
    corners_px: Array
    residuals_px: Array


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibrated camera with what it rests on.

    rms_px: over all corners of the used views; sigma: standard deviations of fx, fy, cx, cy in px; coverage: share of
    an 8 x 8 grid over the picture in which a used corner lies.
    """

    camera: Camera
    views: tuple[View, ...]
    rms_px: float
    sigma: tuple[float, float, float, float]
    coverage: float

    @property
    def dropped(self) -> tuple[View, ...]:
        """Views that were left out."""
        return tuple(v for v in self.views if not v.used)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a careful user should know about this calibration."""
        used = [v for v in self.views if v.used]
        notes = []
        if len(used) < 8:
            notes.append(f"only {len(used)} views were used; ten or more with different tilts are better")
        if self.coverage < 0.4:
            notes.append(f"the board covered {self.coverage:.0%} of the picture; the lens is uncertain elsewhere")
        if self.sigma[0] > 0.01 * self.camera.fx:
            notes.append(f"the focal length is uncertain by {self.sigma[0] / self.camera.fx:.1%}; tilt the board more")
        if self.rms_px > 1.0:
            notes.append(f"corners miss by {self.rms_px:.2f} px on average; is the lens model right?")
        return tuple(notes)


def calibrate(sightings: Sequence[Sighting], *, lens: Literal["pinhole", "fisheye"] = "pinhole") -> Calibration:
    """Calibrate one camera from boards seen in several pictures of one size."""
    sizes = {s.size for s in sightings}
    if len(sizes) > 1:
        raise UsageError(
            f"pictures: expected one size, found {', '.join(f'{w}x{h}' for w, h in sorted(sizes))}; a camera is "
            "calibrated for one size at a time."
        )
    if len(sightings) < MIN_VIEWS:
        raise InputError(
            f"pictures: expected the board in at least {MIN_VIEWS} of them, found it in {len(sightings)}; take more, "
            "sharp and with different tilts, or check --board."
        )
    used = list(range(len(sightings)))
    reasons: dict[int, str] = {}
    while True:
        start = _start([sightings[i] for i in used], lens)
        solution = _refine([sightings[i] for i in used], start)
        errors = np.array([_rms(r) for r in solution.residuals])
        worst = int(np.argmax(errors))
        middle = float(np.median(errors))
        if errors[worst] <= max(_BAD_RATIO * middle, 0.15) or len(used) <= MIN_VIEWS:
            break
        reasons[used[worst]] = f"its error of {errors[worst]:.2f} px is {errors[worst] / middle:.1f} times the median"
        del used[worst]
    camera = solution.camera
    views = []
    for i, sighting in enumerate(sightings):
        if i in reasons:
            residual = _residual(camera, sighting, _pose(camera, sighting))
            views.append(View(sighting.name, _rms(residual), False, reasons[i], sighting.corners_px, residual))
        else:
            residual = solution.residuals[used.index(i)]
            views.append(View(sighting.name, _rms(residual), True, "", sighting.corners_px, residual))
    everything = np.concatenate(solution.residuals)
    corners = np.concatenate([sightings[i].corners_px for i in used])
    return Calibration(camera, tuple(views), _rms(everything), solution.sigma, _coverage(corners, camera))


def undistorted_camera(camera: Camera, *, fov_deg: float | None = None) -> Camera:
    """The ideal pinhole camera of an undistorted picture: the same size, the field of view as asked.

    Unasked it is the lens's own, but 120 degrees at most: a pinhole picture of more is all rim.
    """
    if fov_deg is None:
        edge = cameras.unproject_rays(camera, [[-0.5, camera.cy], [camera.width - 0.5, camera.cy]])
        angles = np.degrees(np.arctan2(np.hypot(edge[:, 0], edge[:, 1]), edge[:, 2]))
        whole = float(np.nansum(angles)) if np.isfinite(angles).all() else 120.0
        fov_deg = min(whole, 120.0)
    return Camera.from_fov(camera.width, camera.height, fov_deg)


def undistort(picture: NDArray[np.uint8], camera: Camera, target: Camera | None = None) -> NDArray[np.uint8]:
    """The picture (H, W[, 3]) as the ideal pinhole camera `target` would take it; black where nothing was seen."""
    if picture.shape[:2] != (camera.height, camera.width):
        raise UsageError(
            f"picture: expected the calibrated size {camera.width}x{camera.height}, found "
            f"{picture.shape[1]}x{picture.shape[0]}; calibrate at that size."
        )
    target = target or undistorted_camera(camera)
    where = cameras.project(camera, cameras.rays(target)).astype(np.float32)
    where = np.nan_to_num(where, nan=-10.0)
    return np.asarray(cv2.remap(picture, where[..., 0], where[..., 1], cv2.INTER_CUBIC, borderValue=0))


@dataclass(frozen=True, eq=False)
class _Solution:
    camera: Camera
    residuals: list[Array]
    sigma: tuple[float, float, float, float]


def _start(sightings: Sequence[Sighting], lens: str) -> tuple[Camera, list[Array]]:
    """Intrinsics and poses to begin with."""
    width, height = sightings[0].size
    if lens == "pinhole":
        world = [s.board_mm.astype(np.float32) for s in sightings]
        picture = [s.corners_px.astype(np.float32) for s in sightings]
        flags = cv2.CALIB_FIX_K3 | cv2.CALIB_ZERO_TANGENT_DIST
        try:
            _, k, d, _, _ = cv2.calibrateCamera(world, picture, (width, height), None, None, flags=flags)
        except cv2.error as error:
            raise InputError(
                "pictures: expected boards seen at different tilts, found views from which no focal length follows "
                f"({str(error.err).strip()[:60]}); tilt the board between pictures."
            ) from None
        d = d.ravel()
        camera = Camera(width, height, k[0, 0], k[1, 1], k[0, 2], k[1, 2], "pinhole", (d[0], d[1], 0.0, 0.0, 0.0))
        return camera, [_pose(camera, s) for s in sightings]
    best: tuple[float, Camera] | None = None
    for fov in (60, 80, 100, 120, 140, 160, 180):
        guess = Camera.from_fov(width, height, float(fov), "fisheye")
        miss = float(np.mean([_rms(_residual(guess, s, _pose(guess, s))) for s in sightings]))
        if best is None or miss < best[0]:
            best = (miss, guess)
    assert best is not None
    camera = replace(best[1], distortion=(0.0, 0.0, 0.0, 0.0))
    return camera, [_pose(camera, s) for s in sightings]


def _pose(camera: Camera, sighting: Sighting) -> Array:
    """Rotation vector and translation (6,) of a board, from the rays of its corners."""
    rays = cameras.unproject_rays(camera, sighting.corners_px)
    good = np.isfinite(rays).all(axis=1) & (rays[:, 2] > 0.05)
    flat = (rays[good, :2] / rays[good, 2:]).astype(np.float64)
    if len(flat) < 4:
        return np.array([0.0, 0.0, 0.0, 0.0, 0.0, 100.0])
    found, r, t = cv2.solvePnP(sighting.board_mm[good], flat[:, None], np.eye(3), None, flags=cv2.SOLVEPNP_IPPE)
    if not found:
        return np.array([0.0, 0.0, 0.0, 0.0, 0.0, 100.0])
    return np.concatenate([r.ravel(), t.ravel()])


def _residual(camera: Camera, sighting: Sighting, pose: Array) -> Array:
    rotation, _ = cv2.Rodrigues(pose[:3])
    return cameras.project(camera, sighting.board_mm @ rotation.T + pose[3:]) - sighting.corners_px


def _refine(sightings: Sequence[Sighting], start: tuple[Camera, list[Array]]) -> _Solution:
    """Levenberg–Marquardt over intrinsics and poses; a view's corners depend on its own pose only, so each view adds a
    small dense block, and corners that miss by more than a pixel count less (Huber)."""
    camera, poses = start
    inner = 4 + (4 if camera.lens == "fisheye" else 5)
    x = np.concatenate([[camera.fx, camera.fy, camera.cx, camera.cy], _padded(camera.distortion, inner - 4), *poses])
    steps = np.concatenate([[1e-3] * 4, [1e-6] * (inner - 4), [1e-6] * 3, [1e-5] * 3])

    def camera_of(values: Array) -> Camera:
        fx, fy, cx, cy = (float(v) for v in values[:4])
        return replace(camera, fx=fx, fy=fy, cx=cx, cy=cy, distortion=tuple(values[4:inner].tolist()))

    def view_residual(values: Array, i: int) -> Array:
        pose = values[inner + 6 * i : inner + 6 * i + 6]
        out = _residual(camera_of(values), sightings[i], pose).ravel()
        return np.nan_to_num(out, nan=1e2, posinf=1e3, neginf=-1e3)

    def everything(values: Array) -> list[Array]:
        if values[0] <= 1 or values[1] <= 1:
            return [np.full(2 * len(s.corners_px), 1e3) for s in sightings]
        return [view_residual(values, i) for i in range(len(sightings))]

    residuals = everything(x)
    cost, damping = _huber(residuals), 1e-3
    normal = np.eye(len(x))
    for _ in range(60):
        normal, gradient = np.zeros((len(x), len(x))), np.zeros(len(x))
        for i, residual in enumerate(residuals):
            columns = np.r_[:inner, inner + 6 * i : inner + 6 * i + 6]
            jacobian = np.empty((len(residual), len(columns)))
            for k, column in enumerate(columns):
                moved = x.copy()
                moved[column] += steps[k]
                jacobian[:, k] = (view_residual(moved, i) - residual) / steps[k]
            weight = np.repeat(1.0 / np.maximum(1.0, np.hypot(residual[::2], residual[1::2])), 2)
            normal[np.ix_(columns, columns)] += jacobian.T @ (jacobian * weight[:, None])
            gradient[columns] += jacobian.T @ (weight * residual)
        improved = False
        for _ in range(8):
            step = np.linalg.lstsq(normal + damping * np.diag(np.diag(normal) + 1e-12), -gradient, rcond=None)[0]
            trial = everything(x + step)
            trial_cost = _huber(trial)
            if trial_cost < cost:
                improved = cost - trial_cost > 1e-9 * cost
                x, residuals, cost, damping = x + step, trial, trial_cost, max(damping * 0.2, 1e-12)
                break
            damping *= 6.0
        if not improved:
            break
    flat = np.concatenate(residuals)
    variance = float(flat @ flat) / max(len(flat) - len(x), 1)
    spread = np.sqrt(np.maximum(np.diag(np.linalg.pinv(normal))[:4] * variance, 0.0))
    sigma = (float(spread[0]), float(spread[1]), float(spread[2]), float(spread[3]))
    return _Solution(camera_of(x), [r.reshape(-1, 2) for r in residuals], sigma)


def _huber(residuals: Sequence[Array]) -> float:
    total = 0.0
    for residual in residuals:
        length = np.hypot(residual[::2], residual[1::2])
        total += float(np.sum(np.where(length <= 1.0, 0.5 * length**2, length - 0.5)))
    return total


def _padded(values: Sequence[float], count: int) -> Array:
    out = np.zeros(count)
    out[: len(values)] = values
    return out


def _rms(residual: Array) -> float:
    return float(np.sqrt(np.mean(np.sum(residual**2, axis=-1))))


def _coverage(corners: Array, camera: Camera) -> float:
    cells = np.floor((corners + 0.5) / [camera.width, camera.height] * _GRID).astype(int)
    return len(set(map(tuple, np.clip(cells, 0, _GRID - 1).tolist()))) / _GRID**2
