"""Lighting of what the rasteriser found: wet tissue under lamps that sit beside the lens.

Deferred: every visible pixel is shaded once. Diffuse light wraps a little round edges (light spreads inside tissue),
the wet film gives GGX highlights (Walter et al., 2007), light falls off with the square of the distance and inside a
cone, and a soft second bounce takes the colour of the walls around.
"""

from __future__ import annotations

import copy

import cv2
import numpy as np
from numba import njit
from numpy.typing import NDArray

from polypscope.simulator.renderer import Hits, Lens
from polypscope.simulator.surface import Surface
from polypscope.simulator.tissue import CHANNELS, LEVELS, Look, PolypLook, Texture

__all__ = ["Tissue", "shade"]

_LAMBDA = 1.0 / np.pi


class Tissue:
    """Everything about the surface that lighting needs, packed for the kernel once per sequence."""

    def __init__(
        self,
        surface: Surface,
        normals: NDArray[np.float32],
        tint: NDArray[np.float32],
        look: Look,
        wall: Texture,
        polyp: Texture,
        polyps: list[PolypLook],
    ) -> None:
        self.faces, self.vertices, self.materials = surface.faces, surface.vertices, surface.materials
        # One row per vertex keeps a pixel's three fetches in three cache lines: normal, colour, share of polyp.
        self.attributes = np.ascontiguousarray(
            np.concatenate([normals, tint, surface.blend[:, None], np.zeros((len(tint), 1), np.float32)], 1), np.float32
        )
        self.wall, self.polyp = wall, polyp
        rows = [(1, 1, 1, 0, 0, 1, 1)] + [(*p.tint, p.texture_strength, p.bump, p.scale, p.gloss) for p in polyps]
        self.polyp_table = np.array(rows, np.float32)
        self.look, self.parameters = look, _parameters(look)

    def under(self, look: Look) -> Tissue:
        """The same tissue, seen as another look of the same patterns has it (`Look.relit`)."""
        other = copy.copy(self)
        other.look, other.parameters = look, _parameters(look)
        other.wall = Texture(self.wall.values, look.mm_per_px)
        return other


def _parameters(look: Look) -> NDArray[np.float32]:
    return np.array(
        [
            look.roughness,
            look.gloss,
            look.wrap,
            look.bump,
            look.spec_bump,
            np.cos(look.cone_inner),
            np.cos(look.cone_outer),
        ],
        np.float32,
    )


def shade(
    hits: Hits, lens: Lens, tissue: Tissue, points: NDArray[np.float64], pose: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Linear light [H, W, 3], unit-free until the exposure is set; 0 where no tissue was hit.

    `points` are the surface's vertices in the camera frame, as `cast` returned them.
    """
    light = np.zeros((*hits.face.shape, 3), np.float32)
    albedo = np.zeros_like(light)
    rotation, origin = np.ascontiguousarray(pose[:3, :3]), np.ascontiguousarray(pose[:3, 3])
    focal = np.float32(0.5 * (lens.camera.fx + lens.camera.fy))
    _shade(
        hits.face, hits.distance, lens.rays, points, tissue.faces, tissue.materials, tissue.attributes, rotation,
        origin,
        tissue.look.lights, tissue.wall.values, np.float32(tissue.wall.mm_per_px), tissue.polyp.values,
        np.float32(tissue.polyp.mm_per_px), tissue.polyp_table, tissue.parameters, focal, light, albedo,
    )  # fmt: skip
    if tissue.look.bounce > 0:
        height, width = hits.face.shape
        small = cv2.resize(
            np.minimum(light, 4 * light.mean() + 1e-12), (width // 8, height // 8), interpolation=cv2.INTER_AREA
        )
        around = cv2.resize(cv2.blur(small, (11, 11)), (width, height), interpolation=cv2.INTER_LINEAR)
        light += np.float32(tissue.look.bounce) * around * albedo
    return light


@njit(cache=True, inline="always")
def _level(footprint_px, side):
    level = 0
    offset = 0
    while footprint_px > 1.3 and level < LEVELS - 1:
        offset += side * side * CHANNELS
        side //= 2
        footprint_px *= 0.5
        level += 1
    return level, offset, side


@njit(cache=True)
def _fetch(texture, offset, side, scale, u, v, weight, out):
    """Add weight × the bilinear texel at (u, v) mm to out[0:7]."""
    x = u * scale
    y = v * scale
    xf = np.floor(x)
    yf = np.floor(y)
    fx = np.float32(x - xf)
    fy = np.float32(y - yf)
    mask = side - 1
    x0 = int(xf) & mask
    y0 = int(yf) & mask
    x1 = (x0 + 1) & mask
    y1 = (y0 + 1) & mask
    a = offset + (y0 * side + x0) * CHANNELS
    b = offset + (y0 * side + x1) * CHANNELS
    c = offset + (y1 * side + x0) * CHANNELS
    d = offset + (y1 * side + x1) * CHANNELS
    one = np.float32(1.0)
    wa = (one - fx) * (one - fy) * weight
    wb = fx * (one - fy) * weight
    wc = (one - fx) * fy * weight
    wd = fx * fy * weight
    for k in range(7):
        out[k] += wa * texture[a + k] + wb * texture[b + k] + wc * texture[c + k] + wd * texture[d + k]


@njit(cache=True)
def _triplanar(texture, mm_per_px, footprint_mm, px, py, pz, nx, ny, nz, out, bump):
    """Blend the tile seen along the three axes; bump is the tilt of the normal in world axes."""
    total = len(texture)
    side = 1024 if total > 4_000_000 else 512
    level, offset, level_side = _level(footprint_mm / mm_per_px, side)
    scale = 1.0 / (mm_per_px * (1 << level))
    for k in range(7):
        out[k] = 0.0
    bump[0] = bump[1] = bump[2] = 0.0
    wx, wy, wz = nx * nx, ny * ny, nz * nz
    wx, wy, wz = wx * wx * wx, wy * wy * wy, wz * wz * wz
    inverse = np.float32(1.0) / (wx + wy + wz + np.float32(1e-12))
    wx, wy, wz = wx * inverse, wy * inverse, wz * inverse
    small = np.float32(0.06)
    wx = wx if wx > small else np.float32(0)
    wy = wy if wy > small else np.float32(0)
    wz = wz if wz > small else np.float32(0)
    inverse = np.float32(1.0) / (wx + wy + wz)
    before3 = before4 = np.float32(0)
    if wx > 0:
        wx *= inverse
        _fetch(texture, offset, level_side, scale, py, pz, wx, out)
        bump[1] += out[3] - np.float32(128) * wx
        bump[2] += out[4] - np.float32(128) * wx
        before3, before4 = out[3], out[4]
    if wy > 0:
        wy *= inverse
        _fetch(texture, offset, level_side, scale, pz + 17.3, px + 5.1, wy, out)
        bump[2] += out[3] - before3 - np.float32(128) * wy
        bump[0] += out[4] - before4 - np.float32(128) * wy
        before3, before4 = out[3], out[4]
    if wz > 0:
        wz *= inverse
        _fetch(texture, offset, level_side, scale, px + 31.7, py + 11.9, wz, out)
        bump[0] += out[3] - before3 - np.float32(128) * wz
        bump[1] += out[4] - before4 - np.float32(128) * wz
    unit = np.float32(1.0 / 64.0)
    bump[0] *= unit
    bump[1] *= unit
    bump[2] *= unit


@njit(cache=True, fastmath=True)
def _shade(
    face_at, distance, rays, points, faces, materials, attributes, rotation, origin, lights, wall, wall_mm, polyp,
    polyp_mm, polyp_table, parameters, focal, light, albedo_out,
):  # fmt: skip
    height, width = face_at.shape
    roughness, gloss, wrap, bump_wall, spec_bump = (
        parameters[0],
        parameters[1],
        parameters[2],
        parameters[3],
        parameters[4],
    )
    cone_inner, cone_outer = parameters[5], parameters[6]
    texel = np.zeros(8, np.float32)
    texel2 = np.zeros(8, np.float32)
    bump = np.zeros(3, np.float32)
    bump2 = np.zeros(3, np.float32)
    count = lights.shape[0]
    lamp = np.empty((count, 4), np.float32)
    for n in range(count):
        for r in range(3):
            lamp[n, r] = rotation[r, 0] * lights[n, 0] + rotation[r, 1] * lights[n, 1] + rotation[r, 2] * lights[n, 2]
        lamp[n, 3] = lights[n, 3]
    alpha = roughness * roughness
    alpha2 = alpha * alpha
    axis_x, axis_y, axis_z = np.float32(rotation[0, 2]), np.float32(rotation[1, 2]), np.float32(rotation[2, 2])
    one, zero = np.float32(1), np.float32(0)
    for y in range(height):
        for x in range(width):
            f = face_at[y, x]
            if f < 0 or f >= faces.shape[0]:
                continue
            i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
            rx, ry, rz = rays[y, x, 0], rays[y, x, 1], rays[y, x, 2]
            ax, ay, az = points[i, 0], points[i, 1], points[i, 2]
            bx, by, bz = points[j, 0], points[j, 1], points[j, 2]
            cx, cy, cz = points[k, 0], points[k, 1], points[k, 2]
            u = (by * cz - bz * cy) * rx + (bz * cx - bx * cz) * ry + (bx * cy - by * cx) * rz
            v = (cy * az - cz * ay) * rx + (cz * ax - cx * az) * ry + (cx * ay - cy * ax) * rz
            w = (ay * bz - az * by) * rx + (az * bx - ax * bz) * ry + (ax * by - ay * bx) * rz
            scale = 1.0 / (u + v + w)
            b0, b1, b2 = np.float32(u * scale), np.float32(v * scale), np.float32(w * scale)
            nx = b0 * attributes[i, 0] + b1 * attributes[j, 0] + b2 * attributes[k, 0]
            ny = b0 * attributes[i, 1] + b1 * attributes[j, 1] + b2 * attributes[k, 1]
            nz = b0 * attributes[i, 2] + b1 * attributes[j, 2] + b2 * attributes[k, 2]
            inverse = one / np.sqrt(nx * nx + ny * ny + nz * nz + np.float32(1e-20))
            nx, ny, nz = nx * inverse, ny * inverse, nz * inverse
            t = distance[y, x]
            # From the eye to the point, in world axes.
            ex = np.float32((rotation[0, 0] * rx + rotation[0, 1] * ry + rotation[0, 2] * rz) * t)
            ey = np.float32((rotation[1, 0] * rx + rotation[1, 1] * ry + rotation[1, 2] * rz) * t)
            ez = np.float32((rotation[2, 0] * rx + rotation[2, 1] * ry + rotation[2, 2] * rz) * t)
            px, py, pz = origin[0] + ex, origin[1] + ey, origin[2] + ez
            far = np.sqrt(ex * ex + ey * ey + ez * ez)
            vx, vy, vz = -ex / far, -ey / far, -ez / far
            facing = max(nx * vx + ny * vy + nz * vz, np.float32(0.25))
            footprint = far / (focal * np.sqrt(facing))
            _triplanar(wall, wall_mm, footprint, px, py, pz, nx, ny, nz, texel, bump)
            unit = np.float32(1.0 / 128.0)
            red = texel[0] * unit
            green = texel[1] * unit
            blue = texel[2] * unit
            wet = texel[5] * unit * gloss
            tilt = bump_wall
            sx, sy, sz = bump[0], bump[1], bump[2]
            material = materials[f]
            share = b0 * attributes[i, 6] + b1 * attributes[j, 6] + b2 * attributes[k, 6]
            if material > 0 and share > 0:
                row = polyp_table[material]
                _triplanar(polyp, polyp_mm * row[5], footprint, px, py, pz, nx, ny, nz, texel2, bump2)
                strength = row[3]
                keep = one - share
                red = red * keep + share * row[0] * (one + strength * (texel2[0] * unit - one))
                green = green * keep + share * row[1] * (one + strength * (texel2[1] * unit - one))
                blue = blue * keep + share * row[2] * (one + strength * (texel2[2] * unit - one))
                ratio = row[4] / max(bump_wall, np.float32(0.05))
                sx = sx * keep + share * ratio * bump2[0]
                sy = sy * keep + share * ratio * bump2[1]
                sz = sz * keep + share * ratio * bump2[2]
                wet = wet * (keep + share * row[6])
            red *= b0 * attributes[i, 3] + b1 * attributes[j, 3] + b2 * attributes[k, 3]
            green *= b0 * attributes[i, 4] + b1 * attributes[j, 4] + b2 * attributes[k, 4]
            blue *= b0 * attributes[i, 5] + b1 * attributes[j, 5] + b2 * attributes[k, 5]
            stool = texel[6] * np.float32(1.0 / 255.0)
            if stool > 0:
                red = red * (one - stool) + stool * np.float32(0.5)
                green = green * (one - stool) + stool * np.float32(0.28)
                blue = blue * (one - stool) + stool * np.float32(0.08)
            dx, dy, dz = nx + tilt * sx, ny + tilt * sy, nz + tilt * sz
            inverse = one / np.sqrt(dx * dx + dy * dy + dz * dz)
            dx, dy, dz = dx * inverse, dy * inverse, dz * inverse
            st = tilt * spec_bump
            gx, gy, gz = nx + st * sx, ny + st * sy, nz + st * sz
            inverse = one / np.sqrt(gx * gx + gy * gy + gz * gz)
            gx, gy, gz = gx * inverse, gy * inverse, gz * inverse
            diffuse = zero
            specular = zero
            for n in range(count):
                lx, ly, lz = lamp[n, 0] - ex, lamp[n, 1] - ey, lamp[n, 2] - ez
                square = lx * lx + ly * ly + lz * lz
                inverse = one / np.sqrt(square)
                lx, ly, lz = lx * inverse, ly * inverse, lz * inverse
                cosine = -(lx * axis_x + ly * axis_y + lz * axis_z)
                beam = (cosine - cone_outer) / (cone_inner - cone_outer)
                if beam <= 0:
                    continue
                beam = min(beam, one)
                beam = beam * beam * (np.float32(3) - np.float32(2) * beam)
                power = lamp[n, 3] * beam * np.float32(400) / (square + np.float32(4))
                lambert = dx * lx + dy * ly + dz * lz
                wrapped = (lambert + wrap) / ((one + wrap) * (one + wrap))
                if wrapped > 0:
                    diffuse += power * wrapped
                hx, hy, hz = lx + vx, ly + vy, lz + vz
                inverse = one / np.sqrt(hx * hx + hy * hy + hz * hz + np.float32(1e-20))
                hx, hy, hz = hx * inverse, hy * inverse, hz * inverse
                nl = gx * lx + gy * ly + gz * lz
                if nl > 0:
                    nh = gx * hx + gy * hy + gz * hz
                    nv = max(gx * vx + gy * vy + gz * vz, np.float32(0.05))
                    d = nh * nh * (alpha2 - one) + one
                    term = alpha2 / (np.float32(np.pi) * d * d)
                    # Smith's shadowing in its height-correlated short form.
                    mask = np.float32(0.5) / (nl * (nv * (one - alpha) + alpha) + nv * (nl * (one - alpha) + alpha))
                    vh = vx * hx + vy * hy + vz * hz
                    schlick = (one - vh) * (one - vh)
                    fresnel = np.float32(0.028) + np.float32(0.972) * schlick * schlick * (one - vh)
                    specular += power * nl * term * mask * fresnel * wet
            base = diffuse * np.float32(_LAMBDA)
            light[y, x, 0] = base * red + specular
            light[y, x, 1] = base * green + specular
            light[y, x, 2] = base * blue + specular
            albedo_out[y, x, 0] = red
            albedo_out[y, x, 1] = green
            albedo_out[y, x, 2] = blue
