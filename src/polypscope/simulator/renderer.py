"""A rasteriser in numba that is exact: which triangle each pixel's ray hits first, and how far away.

Triangles are tested with homogeneous edge functions (Olano and Greer, 1997) of the true viewing ray through the pixel
centre, so nothing is clipped and the depth is the ray-plane intersection itself, not an interpolation. A pinhole
camera steps the edge functions along a row; a fisheye camera evaluates them with its table of rays, so it is as exact:
only the bounding box of a triangle is conservative there, because straight edges become curves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from polypscope.records import Camera

__all__ = ["Hits", "Lens", "cast"]

Array = NDArray[np.float64]
_FAR = np.float32(1e9)


@dataclass(frozen=True)
class Lens:
    """What the renderer needs to know of a camera: its rays and how points fall onto the picture.

    `rays` is float64 [H, W, 3] with z = 1 for a pinhole camera and of unit length for a fisheye camera.
    """

    camera: Camera
    rays: Array
    max_angle_rad: float

    @classmethod
    def of(cls, camera: Camera) -> Lens:
        from polypscope.records.errors import UsageError

        if camera.lens == "pinhole" and any(camera.distortion):
            raise UsageError(
                "camera: expected a pinhole camera without distortion or a fisheye camera, found a distorted pinhole; "
                "render without distortion, or describe the lens as fisheye."
            )
        x = (np.arange(camera.width) - camera.cx) / camera.fx
        y = (np.arange(camera.height) - camera.cy) / camera.fy
        xx, yy = np.meshgrid(x, y)
        if camera.lens == "pinhole":
            rays = np.stack([xx, yy, np.ones_like(xx)], -1)
            return cls(camera, rays, float(np.arctan(np.hypot(xx, yy).max())))
        radius = np.hypot(xx, yy)
        theta = _undistorted_angle(radius, np.array(camera.distortion or (0.0,) * 4))
        if float(theta.max()) > np.radians(178):
            raise UsageError(
                f"fov: expected rays within 178° of the axis, found {np.degrees(theta.max()):.0f}°; lower --fov."
            )
        factor = np.where(radius > 1e-12, np.sin(theta) / np.maximum(radius, 1e-12), 1.0)
        rays = np.stack([xx * factor, yy * factor, np.cos(theta)], -1)
        return cls(camera, rays, float(theta.max()))

    def ray_z(self) -> Array:
        """z of every ray [H, W]: distance along the ray times this is the depth along the axis."""
        return self.rays[..., 2]


def _undistorted_angle(radius: Array, k: Array) -> Array:
    """Invert θ (1 + k1 θ² + k2 θ⁴ + k3 θ⁶ + k4 θ⁸) = radius by Newton's method."""
    theta = np.minimum(radius, 3.1)
    for _ in range(20):
        t2 = theta * theta
        value = theta * (1 + t2 * (k[0] + t2 * (k[1] + t2 * (k[2] + t2 * k[3])))) - radius
        slope = 1 + t2 * (3 * k[0] + t2 * (5 * k[1] + t2 * (7 * k[2] + t2 * 9 * k[3])))
        theta = theta - value / np.where(np.abs(slope) > 1e-6, slope, 1.0)
    return theta


@dataclass
class Hits:
    """The picture before it is lit: nearest triangle and distance per pixel.

    `face` is int32 [H, W] (-1: nothing), `distance` float32 [H, W] in units of the lens's rays (1e9: nothing).
    """

    face: NDArray[np.int32]
    distance: NDArray[np.float32]

    @classmethod
    def empty(cls, camera: Camera) -> Hits:
        shape = (camera.height, camera.width)
        return cls(np.full(shape, -1, np.int32), np.full(shape, _FAR, np.float32))

    def depth_mm(self, lens: Lens) -> NDArray[np.float32]:
        """Depth along the axis [H, W], NaN where nothing was hit."""
        z = self.distance * lens.ray_z()
        # A ray that leaves at more than 90° has no depth along the axis.
        return np.where((self.face >= 0) & (z > 0.01), z, np.nan).astype(np.float32)


def cast(
    hits: Hits,
    lens: Lens,
    vertices: Array,
    faces: NDArray[np.int32],
    pose: Array,
    first_id: int = 0,
    two_sided: bool = False,
) -> Array:
    """Draw triangles into `hits`; returns the vertices [V, 3] in the camera frame.

    `pose` is the 4×4 camera-to-world matrix; `first_id` is added to the face numbers, so that several meshes share
    one picture.
    """
    camera = lens.camera
    rotation, origin = np.ascontiguousarray(pose[:3, :3]), np.ascontiguousarray(pose[:3, 3])
    if camera.lens == "pinhole":
        points, screen = _project_pinhole(vertices, rotation, origin, camera.fx, camera.fy, camera.cx, camera.cy)
        _raster_pinhole(
            points,
            screen,
            faces,
            camera.fx,
            camera.fy,
            camera.cx,
            camera.cy,
            hits.face,
            hits.distance,
            first_id,
            two_sided,
        )
        return points
    k = np.array(camera.distortion or (0.0,) * 4)
    limit = min(lens.max_angle_rad + 0.2, np.pi)
    points, screen = _project_fisheye(vertices, rotation, origin, camera.fx, camera.fy, camera.cx, camera.cy, k, limit)
    _raster_rays(
        points, screen, faces, lens.rays, min(camera.fx, camera.fy), hits.face, hits.distance, first_id, two_sided
    )
    return points


@njit(cache=True)
def _project_pinhole(vertices, rotation, origin, fx, fy, cx, cy):
    n = vertices.shape[0]
    points = np.empty((n, 3))
    screen = np.empty((n, 2), np.float32)
    for i in range(n):
        a, b, c = vertices[i, 0] - origin[0], vertices[i, 1] - origin[1], vertices[i, 2] - origin[2]
        x = a * rotation[0, 0] + b * rotation[1, 0] + c * rotation[2, 0]
        y = a * rotation[0, 1] + b * rotation[1, 1] + c * rotation[2, 1]
        z = a * rotation[0, 2] + b * rotation[1, 2] + c * rotation[2, 2]
        points[i, 0], points[i, 1], points[i, 2] = x, y, z
        if z > 1e-6:
            screen[i, 0] = fx * x / z + cx
            screen[i, 1] = fy * y / z + cy
    return points, screen


@njit(cache=True)
def _project_fisheye(vertices, rotation, origin, fx, fy, cx, cy, k, limit):
    n = vertices.shape[0]
    points = np.empty((n, 3))
    screen = np.empty((n, 2), np.float32)
    cos_limit = np.cos(limit)
    for i in range(n):
        a, b, c = vertices[i, 0] - origin[0], vertices[i, 1] - origin[1], vertices[i, 2] - origin[2]
        x = a * rotation[0, 0] + b * rotation[1, 0] + c * rotation[2, 0]
        y = a * rotation[0, 1] + b * rotation[1, 1] + c * rotation[2, 1]
        z = a * rotation[0, 2] + b * rotation[1, 2] + c * rotation[2, 2]
        points[i, 0], points[i, 1], points[i, 2] = x, y, z
        side = np.sqrt(x * x + y * y)
        if z < cos_limit * np.sqrt(side * side + z * z):
            screen[i, 0] = np.nan
            continue
        theta = np.arctan2(side, z)
        t2 = theta * theta
        r = theta * (1 + t2 * (k[0] + t2 * (k[1] + t2 * (k[2] + t2 * k[3]))))
        s = r / side if side > 1e-12 else 0.0
        screen[i, 0] = fx * x * s + cx
        screen[i, 1] = fy * y * s + cy
    return points, screen


@njit(cache=True)
def _raster_pinhole(points, screen, faces, fx, fy, cx, cy, face_at, distance, first_id, two_sided):
    height, width = face_at.shape
    left, right, top, bottom = (-0.5 - cx) / fx, (width - 0.5 - cx) / fx, (-0.5 - cy) / fy, (height - 0.5 - cy) / fy
    for f in range(faces.shape[0]):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        az, bz, cz = points[i, 2], points[j, 2], points[k, 2]
        if az <= 1e-6 and bz <= 1e-6 and cz <= 1e-6:
            continue
        if az > 1e-6 and bz > 1e-6 and cz > 1e-6:
            x_min = min(screen[i, 0], screen[j, 0], screen[k, 0])
            x_max = max(screen[i, 0], screen[j, 0], screen[k, 0])
            y_min = min(screen[i, 1], screen[j, 1], screen[k, 1])
            y_max = max(screen[i, 1], screen[j, 1], screen[k, 1])
            if x_max < 0 or y_max < 0 or x_min > width - 1 or y_min > height - 1:
                continue
            # A hair wider than the projection, which is only single precision.
            x0, x1 = max(0, int(np.ceil(x_min - 0.01))), min(width - 1, int(np.floor(x_max + 0.01)))
            y0, y1 = max(0, int(np.ceil(y_min - 0.01))), min(height - 1, int(np.floor(y_max + 0.01)))
        else:
            # The triangle reaches behind the camera: the side planes, which pass through the centre, still hold.
            ax, bx, cx3 = points[i, 0], points[j, 0], points[k, 0]
            if ax < left * az and bx < left * bz and cx3 < left * cz:
                continue
            if ax > right * az and bx > right * bz and cx3 > right * cz:
                continue
            ay, by, cy3 = points[i, 1], points[j, 1], points[k, 1]
            if ay < top * az and by < top * bz and cy3 < top * cz:
                continue
            if ay > bottom * az and by > bottom * bz and cy3 > bottom * cz:
                continue
            x0, x1, y0, y1 = 0, width - 1, 0, height - 1
        if x0 > x1 or y0 > y1:
            continue
        ax, ay, bx, by, cx_, cy_ = points[i, 0], points[i, 1], points[j, 0], points[j, 1], points[k, 0], points[k, 1]
        # Minus the normals of the planes through the eye and each edge.
        ux, uy, uz = bz * cy_ - by * cz, bx * cz - bz * cx_, by * cx_ - bx * cy_
        determinant = ax * ux + ay * uy + az * uz
        if determinant <= 0:
            if not two_sided or determinant == 0:
                continue
            # Seen from behind: exchanging two corners turns the triangle round.
            bx, by, bz, cx_, cy_, cz = cx_, cy_, cz, bx, by, bz
            ux, uy, uz = -ux, -uy, -uz
            determinant = -determinant
        vx, vy, vz = cz * ay - cy_ * az, cx_ * az - cz * ax, cy_ * ax - cx_ * ay
        wx, wy, wz = az * by - ay * bz, ax * bz - az * bx, ay * bx - ax * by
        dx = (x0 - cx) / fx
        ustep, vstep, wstep = ux / fx, vx / fx, wx / fx
        for y in range(y0, y1 + 1):
            dy = (y - cy) / fy
            u = ux * dx + uy * dy + uz
            v = vx * dx + vy * dy + vz
            w = wx * dx + wy * dy + wz
            for x in range(x0, x1 + 1):
                if u >= 0 and v >= 0 and w >= 0:
                    total = u + v + w
                    if total > 0:
                        t = np.float32(determinant / total)
                        if t < distance[y, x]:
                            distance[y, x] = t
                            face_at[y, x] = f + first_id
                u += ustep
                v += vstep
                w += wstep


@njit(cache=True)
def _narrow(points, i, j):
    """Whether two points are seen less than 0.19 rad apart."""
    dot = points[i, 0] * points[j, 0] + points[i, 1] * points[j, 1] + points[i, 2] * points[j, 2]
    a = points[i, 0] ** 2 + points[i, 1] ** 2 + points[i, 2] ** 2
    b = points[j, 0] ** 2 + points[j, 1] ** 2 + points[j, 2] ** 2
    return dot > 0 and dot * dot > 0.9643 * a * b


@njit(cache=True)
def _raster_rays(points, screen, faces, rays, focal, face_at, distance, first_id, two_sided):
    height, width = face_at.shape
    for f in range(faces.shape[0]):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        sa, sb, sc = screen[i, 0], screen[j, 0], screen[k, 0]
        if np.isnan(sa) and np.isnan(sb) and np.isnan(sc):
            continue
        if np.isnan(sa) or np.isnan(sb) or np.isnan(sc):
            # One corner is 0.2 rad outside the picture: a triangle that spans less cannot reach into it.
            if _narrow(points, i, j) and _narrow(points, j, k) and _narrow(points, k, i):
                continue
            whole = True
            x_min = y_min = x_max = y_max = np.float32(0)
        else:
            x_min, x_max = min(sa, sb, sc), max(sa, sb, sc)
            y_min = min(screen[i, 1], screen[j, 1], screen[k, 1])
            y_max = max(screen[i, 1], screen[j, 1], screen[k, 1])
            spread = max(x_max - x_min, y_max - y_min)
            whole = spread > 0.5 * focal
        if whole:
            x0, x1, y0, y1 = 0, width - 1, 0, height - 1
        else:
            # Straight edges bend in the picture; the sagitta of an arc with radius `focal` bounds how far.
            pad = 0.02 + spread * spread / (4 * focal)
            if x_max + pad < 0 or y_max + pad < 0 or x_min - pad > width - 1 or y_min - pad > height - 1:
                continue
            x0, x1 = max(0, int(np.ceil(x_min - pad))), min(width - 1, int(np.floor(x_max + pad)))
            y0, y1 = max(0, int(np.ceil(y_min - pad))), min(height - 1, int(np.floor(y_max + pad)))
        if x0 > x1 or y0 > y1:
            continue
        ax, ay, az = points[i, 0], points[i, 1], points[i, 2]
        bx, by, bz = points[j, 0], points[j, 1], points[j, 2]
        cx, cy, cz = points[k, 0], points[k, 1], points[k, 2]
        ux, uy, uz = bz * cy - by * cz, bx * cz - bz * cx, by * cx - bx * cy
        determinant = ax * ux + ay * uy + az * uz
        if determinant <= 0:
            if not two_sided or determinant == 0:
                continue
            bx, by, bz, cx, cy, cz = cx, cy, cz, bx, by, bz
            ux, uy, uz = -ux, -uy, -uz
            determinant = -determinant
        vx, vy, vz = cz * ay - cy * az, cx * az - cz * ax, cy * ax - cx * ay
        wx, wy, wz = az * by - ay * bz, ax * bz - az * bx, ay * bx - ax * by
        for y in range(y0, y1 + 1):
            for x in range(x0, x1 + 1):
                dx, dy, dz = rays[y, x, 0], rays[y, x, 1], rays[y, x, 2]
                u = ux * dx + uy * dy + uz * dz
                v = vx * dx + vy * dy + vz * dz
                w = wx * dx + wy * dy + wz * dz
                if u >= 0 and v >= 0 and w >= 0:
                    total = u + v + w
                    if total > 0:
                        t = np.float32(determinant / total)
                        if t < distance[y, x]:
                            distance[y, x] = t
                            face_at[y, x] = f + first_id
