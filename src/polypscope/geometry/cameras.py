"""Rays, projection and unprojection for the two lenses of the house: pinhole with distortion, and fisheye.

Conventions, those of OpenCV, so that a calibration made with it can be used as it is:

- camera frame: x right, y down, z forward, in mm;
- pixel (u, v) = (column, row); the *centre* of the top left pixel is (0, 0), so an image spans [-0.5, width - 0.5];
- pinhole distortion `(k1, k2, p1, p2[, k3[, k4, k5, k6]])` (Brown–Conrady, rational with eight values);
- fisheye distortion `(k1, k2, k3, k4)` of Kannala and Brandt: theta_d = theta (1 + k1 theta^2 + ... + k4 theta^8).

Inverting the distortion is done by Newton's method to machine precision (OpenCV stops after a few fixed-point steps). A
pixel that no ray reaches, because the distortion polynomial folds back there, has NaN as its ray.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polypscope.records import Camera, DepthKind, DepthMap
from polypscope.records.errors import RecordError

__all__ = ["points", "project", "ray_lengths", "rays", "to_ray", "to_z", "unproject", "unproject_rays"]

Array = NDArray[np.float64]

_NEWTON_STEPS: Final = 30
_CACHE_SIZE: Final = 4
_ray_maps: OrderedDict[Camera, Array] = OrderedDict()


def rays(camera: Camera) -> Array:
    """Unit direction of the viewing ray through every pixel centre: float64 (H, W, 3), read-only.

    The last few cameras are remembered, since every frame of a clip asks for the same ones.

    >>> camera = Camera(width=3, height=3, fx=2.0, fy=2.0, cx=1.0, cy=1.0)
    >>> rays(camera)[1, 1].tolist()
    [0.0, 0.0, 1.0]
    """
    if camera in _ray_maps:
        _ray_maps.move_to_end(camera)
        return _ray_maps[camera]
    v, u = np.mgrid[: camera.height, : camera.width].astype(np.float64)
    directions = unproject_rays(camera, np.stack([u, v], axis=-1))
    directions.flags.writeable = False
    _ray_maps[camera] = directions
    if len(_ray_maps) > _CACHE_SIZE:
        _ray_maps.popitem(last=False)
    return directions


def unproject_rays(camera: Camera, uv: ArrayLike) -> Array:
    """Unit directions (..., 3) of the rays through pixels `uv` (..., 2); NaN where no ray reaches the pixel."""
    pixels = _last_axis("uv", uv, 2)
    x = (pixels[..., 0] - camera.cx) / camera.fx
    y = (pixels[..., 1] - camera.cy) / camera.fy
    coefficients = _coefficients(camera)
    if camera.lens == "fisheye":
        radius = np.hypot(x, y)
        theta = _undistort_angle(radius, coefficients)
        # sin(theta)/radius -> 1 on the axis, where the division itself would be 0/0.
        scale = np.divide(np.sin(theta), radius, out=np.ones_like(radius), where=radius > 0)
        return np.stack([x * scale, y * scale, np.cos(theta)], axis=-1)
    if coefficients.any():
        x, y = _undistort_plane(x, y, coefficients)
    directions = np.stack([x, y, np.ones_like(x)], axis=-1)
    return np.asarray(directions / np.linalg.norm(directions, axis=-1, keepdims=True))


def project(camera: Camera, xyz: ArrayLike) -> Array:
    """Pixels (..., 2) of points `xyz` (..., 3) in mm; NaN for points the lens cannot see (behind a pinhole).

    >>> camera = Camera(width=320, height=320, fx=200.0, fy=200.0, cx=159.5, cy=159.5)
    >>> project(camera, [[0.0, 0.0, 10.0], [1.0, 0.0, 10.0]]).tolist()
    [[159.5, 159.5], [179.5, 159.5]]
    """
    world = _last_axis("xyz", xyz, 3)
    x, y, z = world[..., 0], world[..., 1], world[..., 2]
    coefficients = _coefficients(camera)
    if camera.lens == "fisheye":
        radius = np.hypot(x, y)
        theta = np.arctan2(radius, z)
        scale = np.divide(_distort_angle(theta, coefficients), radius, out=np.zeros_like(radius), where=radius > 0)
        # On the axis the ratio theta/radius is 1/z; the numerator is zero there, so any finite scale serves.
        u, v = x * scale, y * scale
        u = np.where((radius == 0) & (z <= 0), np.nan, u)
    else:
        ahead = z > 0
        safe = np.where(ahead, z, 1.0)
        u, v = np.where(ahead, x / safe, np.nan), np.where(ahead, y / safe, np.nan)
        if coefficients.any():
            u, v = _distort_plane(u, v, coefficients)
    return np.stack([camera.fx * u + camera.cx, camera.fy * v + camera.cy], axis=-1)


def unproject(camera: Camera, uv: ArrayLike, depth_mm: ArrayLike, *, kind: DepthKind = DepthKind.Z_MM) -> Array:
    """Points (..., 3) in mm seen at pixels `uv` (..., 2) at `depth_mm` (...), along the axis or along the ray.

    >>> camera = Camera(width=320, height=320, fx=200.0, fy=200.0, cx=159.5, cy=159.5)
    >>> unproject(camera, [179.5, 159.5], 10.0).round(9).tolist()
    [1.0, 0.0, 10.0]
    """
    directions = unproject_rays(camera, uv)
    length = np.asarray(depth_mm, dtype=np.float64)
    if kind is DepthKind.RELATIVE:
        raise RecordError.of("depth kind", expected="mm", found="relative depth", hint="align it to mm first")
    if kind is DepthKind.Z_MM:
        length = length / _forward(directions)
    return np.asarray(directions * length[..., None])


def points(camera: Camera, depth: DepthMap) -> Array:
    """Points (H, W, 3) in mm of a whole depth map; NaN where the map has no value."""
    length = ray_lengths(camera, depth)
    return np.asarray(rays(camera) * length[..., None])


def ray_lengths(camera: Camera, depth: DepthMap, window: tuple[slice, slice] = np.s_[:, :]) -> Array:
    """Distance in mm from the camera along each pixel's ray: float64 (H, W), NaN where the map has no value.

    `window` (rows, columns) takes a part of the picture only.
    """
    if depth.kind is DepthKind.RELATIVE:
        raise RecordError.of("depth kind", expected="mm", found="relative depth", hint="align it to mm first")
    if depth.values.shape != (camera.height, camera.width):
        raise RecordError.of(
            "depth map",
            expected=f"the camera's {camera.height} x {camera.width} pixels",
            found=f"{depth.values.shape[0]} x {depth.values.shape[1]}",
            hint="scale the camera or the map",
        )
    values = depth.values[window].astype(np.float64)
    return values / _forward(rays(camera)[window]) if depth.kind is DepthKind.Z_MM else values


def to_ray(camera: Camera, depth: DepthMap) -> DepthMap:
    """The same depth map, measured along the rays."""
    if depth.kind is DepthKind.RAY_MM:
        return depth
    factor = (1.0 / _forward(rays(camera))).astype(np.float32)
    values = ray_lengths(camera, depth).astype(np.float32)
    return DepthMap(values, kind=DepthKind.RAY_MM, sigma=None if depth.sigma is None else depth.sigma * factor)


def to_z(camera: Camera, depth: DepthMap) -> DepthMap:
    """The same depth map, measured along the optical axis."""
    if depth.kind is DepthKind.Z_MM:
        return depth
    factor = _forward(rays(camera)).astype(np.float32)
    values = ray_lengths(camera, depth).astype(np.float32) * factor
    return DepthMap(values, kind=DepthKind.Z_MM, sigma=None if depth.sigma is None else depth.sigma * factor)


def _forward(directions: Array) -> Array:
    # Axial depth says nothing about rays at or beyond 90 degrees: they get no point rather than a huge one.
    z = directions[..., 2]
    return np.where(z > 1e-6, z, np.nan)


def _last_axis(name: str, values: ArrayLike, length: int) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or array.shape[-1] != length:
        raise RecordError.of(name, expected=f"an array of shape (..., {length})", found=f"shape {array.shape}")
    return array


def _coefficients(camera: Camera) -> Array:
    """Distortion padded to the lens's full length: four for a fisheye, eight for a pinhole."""
    full = np.zeros(4 if camera.lens == "fisheye" else 8)
    full[: len(camera.distortion)] = camera.distortion
    # Coefficients too small to move a pixel would still overflow the root search below.
    full[np.abs(full) < 1e-12] = 0.0
    return full


def _distort_angle(theta: Array, k: Array) -> Array:
    t2 = theta * theta
    return np.asarray(theta * (1 + t2 * (k[0] + t2 * (k[1] + t2 * (k[2] + t2 * k[3])))))


def _undistort_angle(radius: Array, k: Array) -> Array:
    if not k.any():
        return np.where(radius <= np.pi, radius, np.nan)
    limit = _angle_limit(k)
    reachable = radius <= _distort_angle(np.asarray(limit), k)
    theta = np.minimum(radius, limit)
    for _ in range(_NEWTON_STEPS):
        t2 = theta * theta
        slope = 1 + t2 * (3 * k[0] + t2 * (5 * k[1] + t2 * (7 * k[2] + t2 * 9 * k[3])))
        step = (_distort_angle(theta, k) - radius) / np.maximum(slope, 1e-6)
        theta = np.clip(theta - step, 0.0, limit)
        if not np.any(np.abs(step[reachable]) > 1e-14):
            break
    return np.where(reachable, theta, np.nan)


def _angle_limit(k: Array) -> float:
    """The angle up to which the fisheye polynomial rises (at most pi)."""
    # d/dtheta in powers of theta^2, highest first.
    roots = np.roots([9 * k[3], 7 * k[2], 5 * k[1], 3 * k[0], 1.0])
    real = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0)]
    return float(min(np.pi, np.sqrt(real.min()) if real.size else np.pi))


def _distort_plane(x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    k1, k2, p1, p2, k3, k4, k5, k6 = c
    r2 = x * x + y * y
    radial = (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
    return (
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
    )


def _undistort_plane(x_d: Array, y_d: Array, c: Array) -> tuple[Array, Array]:
    k1, k2, p1, p2, k3, k4, k5, k6 = c
    # Beyond the radius where the radial polynomial stops rising, two rays share a pixel; only the inner one is meant.
    limit = _radius_limit(c)
    radius = np.hypot(x_d, y_d)
    shrink = np.minimum(1.0, limit / np.maximum(radius, 1e-12))
    x, y = x_d * shrink, y_d * shrink
    for _ in range(_NEWTON_STEPS):
        fx, fy = _distort_plane(x, y, c)
        r2 = x * x + y * y
        top, bottom = 1 + r2 * (k1 + r2 * (k2 + r2 * k3)), 1 + r2 * (k4 + r2 * (k5 + r2 * k6))
        d_top, d_bottom = k1 + r2 * (2 * k2 + r2 * 3 * k3), k4 + r2 * (2 * k5 + r2 * 3 * k6)
        radial, d_radial = top / bottom, (d_top * bottom - top * d_bottom) / (bottom * bottom)
        a = radial + 2 * x * x * d_radial + 2 * p1 * y + 6 * p2 * x
        b = 2 * x * y * d_radial + 2 * p1 * x + 2 * p2 * y
        d = radial + 2 * y * y * d_radial + 6 * p1 * y + 2 * p2 * x
        determinant = a * d - b * b
        determinant = np.where(np.abs(determinant) < 1e-9, 1e-9, determinant)
        ex, ey = fx - x_d, fy - y_d
        step_x, step_y = (d * ex - b * ey) / determinant, (a * ey - b * ex) / determinant
        x, y = x - step_x, y - step_y
        over = np.maximum(1.0, np.hypot(x, y) / limit)
        x, y = x / over, y / over
        if not np.any(np.hypot(step_x, step_y) > 1e-14):
            break
    fx, fy = _distort_plane(x, y, c)
    solved = np.hypot(fx - x_d, fy - y_d) < 1e-9
    return np.where(solved, x, np.nan), np.where(solved, y, np.nan)


def _radius_limit(c: Array) -> float:
    """The undistorted radius up to which the radial distortion rises; infinite where it always does."""
    k1, k2, _, _, k3, k4, k5, k6 = c
    top, bottom = np.poly1d([k3, k2, k1, 1.0]), np.poly1d([k6, k5, k4, 1.0])
    s = np.poly1d([1.0, 0.0])  # r^2
    # r * top/bottom rises while (top + 2 s top') bottom - 2 s top bottom' > 0.
    slope = (top + 2 * s * top.deriv()) * bottom - 2 * s * top * bottom.deriv()
    candidates = np.concatenate([np.atleast_1d(slope.roots), np.atleast_1d(bottom.roots)])
    real = candidates.real[(np.abs(candidates.imag) < 1e-9) & (candidates.real > 0)]
    return float(np.sqrt(real.min())) if real.size else float("inf")
