"""What the wall, its vessels and the polyps look like, and the light that shows them: all drawn from one seed.

`Look.sample` holds every range. Textures are tiles that are laid over the surface from three sides (triplanar), so
they need no unwrapping and serve procedural and CT colons alike.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["Look", "PolypLook", "Texture", "macro_tint", "mucosa_texture", "polyp_texture"]

TILE_PX = 1024
LEVELS = 6
CHANNELS = 8  # red, green, blue (128 = ×1), bump along u, bump along v (128 = 0), gloss, residue, unused


@dataclass(frozen=True)
class Texture:
    """A tile with its smaller versions, flat: uint8 [sum of side² × CHANNELS]."""

    values: NDArray[np.uint8]
    mm_per_px: float


@dataclass(frozen=True)
class PolypLook:
    """How one polyp differs from its surroundings."""

    tint: tuple[float, float, float]
    texture_strength: float
    bump: float
    scale: float
    gloss: float


@dataclass(frozen=True)
class Look:
    """Light, tissue and lens of one sequence (ranges in `sample`)."""

    base: tuple[float, float, float]  # linear albedo
    macro: float
    vessel_strength: float
    vessel_density: float
    speckle: float
    bump: float
    spec_bump: float
    mm_per_px: float
    roughness: float
    gloss: float
    wrap: float
    bounce: float
    lights: NDArray[np.float64]  # [n, 4]: x, y, z in mm in the camera frame, power
    cone_inner: float
    cone_outer: float
    vignette: float
    residue: float
    texture_seed: int

    @classmethod
    def sample(cls, rng: np.random.Generator, clinical: bool = True) -> Look:
        # Ratios are what a viewer sees (after gamma); tissue absorbs blue and green by the power of it.
        red_green = float(np.clip(rng.normal(1.62, 0.17), 1.33, 2.05))
        green_blue = float(np.clip(rng.normal(1.36, 0.13), 1.15, 1.75))
        red = rng.uniform(0.62, 0.8)
        green = red / red_green**2.25
        base = (red, green, green / green_blue**2.25)
        count = int(rng.choice([1, 2, 2, 3]))
        start = rng.uniform(0, 2 * np.pi)
        angle = start + np.arange(count) * 2 * np.pi / count + rng.normal(0, 0.25, count)
        away = rng.uniform(2.0, 5.0, count)
        lights = np.stack(
            [away * np.cos(angle), away * np.sin(angle), rng.uniform(-1, 0.3, count), rng.uniform(0.7, 1.3, count)], -1
        )
        lights[:, 3] /= lights[:, 3].sum()
        return cls(
            base=base,
            macro=float(rng.uniform(0.04, 0.16)),
            vessel_strength=float(rng.uniform(0.05, 1.3)),
            vessel_density=float(rng.uniform(0.6, 1.6)),
            speckle=float(rng.uniform(0.03, 0.13)),
            bump=float(rng.uniform(0.15, 0.6)),
            spec_bump=float(rng.uniform(0.6, 2.0)),
            mm_per_px=float(rng.uniform(0.06, 0.14)),
            roughness=float(rng.uniform(0.2, 0.4)),
            gloss=float(rng.uniform(0.6, 3.6)),
            wrap=float(rng.uniform(0.2, 0.5)),
            bounce=float(rng.uniform(0.05, 0.25)),
            lights=lights,
            cone_inner=float(np.radians(rng.uniform(45, 62))),
            cone_outer=float(np.radians(rng.uniform(75, 95))),
            vignette=float(rng.uniform(0.0, 0.35)),
            residue=float(rng.uniform(0.2, 1.0)) if clinical and rng.random() < 0.18 else 0.0,
            texture_seed=int(rng.integers(2**31)),
        )

    def relit(self, rng: np.random.Generator) -> Look:
        """This tissue's colours and patterns, with everything else drawn anew: lamps, wetness, bumps, and how large
        the patterns are."""
        other = Look.sample(rng)
        return replace(
            other,
            base=self.base,
            macro=self.macro,
            vessel_strength=self.vessel_strength,
            vessel_density=self.vessel_density,
            speckle=self.speckle,
            residue=self.residue,
            texture_seed=self.texture_seed,
        )

    def sample_polyp(self, rng: np.random.Generator, paris: str) -> PolypLook:
        """From hardly different to strongly reddened, pale or yellowish."""
        strength = rng.uniform(0.0, 1.0) ** 1.4
        kind = rng.random()
        if kind < 0.5:
            tint = np.array([1.0, 0.62, 0.66])
        elif kind < 0.88:
            tint = np.array([1.1, 1.25, 1.25])
        else:
            tint = np.array([1.0, 1.0, 0.8])
        tint = 1 + strength * (tint - 1) + rng.normal(0, 0.03, 3)
        if paris == "0-IIb":
            tint = 1 + 0.9 * (tint - 1)
        return PolypLook(
            tint=(float(tint[0]), float(tint[1]), float(tint[2])),
            texture_strength=float(rng.uniform(0.15, 1.0)),
            bump=float(rng.uniform(0.1, 0.75)),
            scale=float(rng.uniform(0.7, 1.6)),
            gloss=float(rng.uniform(0.6, 2.0)),
        )


def _noise(rng: np.random.Generator, side: int, wavelength_px: float, slope: float = 1.8) -> NDArray[np.float32]:
    """Periodic noise with unit deviation: power falls with frequency above 1 / wavelength."""
    f = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None]).astype(np.float32)
    amplitude = 1.0 / (1.0 + (f * wavelength_px) ** 2) ** (slope / 2 + 0.5)
    amplitude[0, 0] = 0
    white = rng.standard_normal((side, side), dtype=np.float32)
    field = np.fft.irfft2(np.fft.rfft2(white) * amplitude, s=(side, side)).astype(np.float32)
    return field / max(float(field.std()), 1e-9)


def _band(rng: np.random.Generator, side: int, wavelength_px: float, width: float = 0.35) -> NDArray[np.float32]:
    """Periodic noise around one wavelength: bumps, pits and granules of one size."""
    f = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None]).astype(np.float32)
    amplitude = np.exp(-0.5 * (np.log(np.maximum(f, 1e-6) * wavelength_px) / width) ** 2)
    white = rng.standard_normal((side, side), dtype=np.float32)
    field = np.fft.irfft2(np.fft.rfft2(white) * amplitude, s=(side, side)).astype(np.float32)
    return field / max(float(field.std()), 1e-9)


def _vessels(rng: np.random.Generator, side: int, density: float) -> NDArray[np.float32]:
    """A periodic tile of branching vessels, 0...1."""
    canvas = np.zeros((side, side), np.float32)
    shift = 3

    def draw(points: NDArray[np.float64], width: float, depth: float) -> None:
        thickness = max(1, round(width))
        weight = min(1.0, width / thickness) * depth
        low = np.floor(points.min(0) / side).astype(int)
        high = np.floor(points.max(0) / side).astype(int)
        layer_value = float(weight)
        for ox in range(low[0], high[0] + 1):
            for oy in range(low[1], high[1] + 1):
                moved = ((points - np.array([ox, oy]) * side) * 2**shift).astype(np.int32)
                cv2.polylines(canvas, [moved[:, None]], False, layer_value, thickness, cv2.LINE_AA, shift)

    queue: list[tuple[float, int, NDArray[np.float64], float]] = []
    for _ in range(int(13 * density)):
        queue.append((-rng.uniform(1.6, 4.2), len(queue), rng.uniform(0, side, 2), rng.uniform(0, 2 * np.pi)))
    heapq.heapify(queue)
    # Thick vessels first, so that what is left out when enough are drawn is the finest everywhere.
    for drawn in range(1300):
        if not queue:
            break
        negative, _, start, heading = heapq.heappop(queue)
        width = -negative
        steps = int(rng.uniform(14, 34) * (1.3 if width > 2.2 else 1.0))
        stride = 4.0 + 2.5 * width
        angles = heading + np.cumsum(rng.normal(0, 0.13, steps)) + rng.normal(0, 0.22, steps)
        moves = stride * np.stack([np.cos(angles), np.sin(angles)], -1)
        path = start + np.concatenate([np.zeros((1, 2)), np.cumsum(moves, 0)])
        draw(path, width, 0.35 + 0.65 * min(1.0, width / 4.0))
        if width < 0.8:
            continue
        for index in range(4, steps, int(rng.integers(4, 9))):
            if rng.random() < 0.72:
                branch = angles[index] + rng.choice([-1, 1]) * rng.uniform(0.35, 1.1)
                heapq.heappush(
                    queue, (-width * rng.uniform(0.45, 0.75), 10_000 + drawn * 50 + index, path[index], branch)
                )
    padded = np.pad(canvas, 16, mode="wrap")
    soft = 0.6 * cv2.GaussianBlur(padded, (0, 0), 1.1) + 0.4 * cv2.GaussianBlur(padded, (0, 0), 3.0)
    return np.clip(soft[16:-16, 16:-16], 0, 1)


def _pack(
    rgb: NDArray[np.float32], height: NDArray[np.float32], gloss: NDArray[np.float32], residue: NDArray[np.float32]
) -> NDArray[np.uint8]:
    side = height.shape[0]
    du = np.roll(height, -1, 1) - np.roll(height, 1, 1)
    dv = np.roll(height, -1, 0) - np.roll(height, 1, 0)
    slope = np.sqrt((du**2 + dv**2).mean()) + 1e-9
    full = np.zeros((side, side, CHANNELS), np.float32)
    full[..., :3] = rgb * 128
    full[..., 3] = 128 - 32 * du / slope
    full[..., 4] = 128 - 32 * dv / slope
    full[..., 5] = gloss * 128
    full[..., 6] = residue * 255
    parts = []
    for _ in range(LEVELS):
        parts.append(np.clip(np.rint(full), 0, 255).astype(np.uint8).ravel())
        full = 0.25 * (full[::2, ::2] + full[1::2, ::2] + full[::2, 1::2] + full[1::2, 1::2])
    return np.concatenate(parts)


def mucosa_texture(look: Look) -> Texture:
    """The wall: vessels, submucosal patches, fine granulation, wet bumps, and residue where there is any."""
    rng = np.random.default_rng([look.texture_seed, 11])
    side = TILE_PX
    fine = side / 256
    vessels = _vessels(rng, side, look.vessel_density)
    patch = _noise(rng, side, 90 * fine, 2.6)
    grain = _band(rng, side, rng.uniform(7, 13) * fine / 2)
    soft = _noise(rng, side, 30 * fine, 2.2)
    tone = 1 + 0.05 * patch + look.speckle * grain
    strength = look.vessel_strength * np.clip(0.75 + 0.35 * soft, 0, 1.3)
    rgb = np.stack(
        [
            tone * np.exp(-0.42 * strength * vessels),
            tone * np.exp(-1.25 * strength * vessels) * (1 + 0.03 * patch),
            tone * np.exp(-1.05 * strength * vessels) * (1 + 0.05 * patch),
        ],
        -1,
    )
    height = (
        1.0 * _noise(rng, side, 26 * fine, 2.0) * 6
        + 0.6 * _band(rng, side, rng.uniform(14, 30) * fine, 0.4) * 3
        + 0.35 * grain
        - 0.5 * vessels
    )
    film = _noise(rng, side, 60 * fine, 2.4)
    gloss = np.clip(0.8 + 0.5 * film, 0.1, 1.9)
    residue = np.zeros((side, side), np.float32)
    if look.residue > 0:
        field = _noise(rng, side, 110 * fine, 1.5) + 0.35 * _band(rng, side, 16 * fine)
        residue = np.clip((field - 2.1 + 0.8 * look.residue) * 1.1, 0, 0.85)
        foam = np.clip(_band(rng, side, 9 * fine, 0.25) - 0.6, 0, 1) * residue
        gloss = gloss * (1 - 0.5 * residue) + 1.2 * foam
        height = height + 5 * residue + 3 * foam
    return Texture(_pack(rgb.astype(np.float32), height, gloss.astype(np.float32), residue), look.mm_per_px)


def polyp_texture(look: Look) -> Texture:
    """Polyps: pits or gyri with small vessels between them, rougher than the wall."""
    rng = np.random.default_rng([look.texture_seed, 12])
    side = TILE_PX // 2
    period = rng.uniform(9, 20)
    cells = _band(rng, side, period, rng.uniform(0.15, 0.35))
    if rng.random() < 0.5:
        pattern = np.tanh(1.4 * cells)  # roundish pits
    else:
        pattern = 1 - 1.6 * np.abs(np.tanh(cells))  # gyrus-like ridges
    patch = _noise(rng, side, 80, 2.2)
    vessels = _vessels(rng, side, 0.9)
    mottle = _noise(rng, side, rng.uniform(14, 34), 2.0)
    tone = 1 + 0.10 * pattern + 0.08 * patch + 0.06 * mottle
    rgb = np.stack(
        [tone * (1 - 0.1 * vessels), tone * (1 - 0.3 * vessels) * (1 + 0.05 * pattern), tone * (1 - 0.26 * vessels)], -1
    )
    height = 1.6 * pattern * period / 10 + 4 * _noise(rng, side, 50, 2.0) + 0.3 * _band(rng, side, 6) - 0.8 * vessels
    gloss = np.clip(0.9 + 0.3 * _noise(rng, side, 40, 2.0), 0.2, 1.6)
    zero = np.zeros((side, side), np.float32)
    return Texture(_pack(rgb.astype(np.float32), height.astype(np.float32), gloss, zero), 0.05)


def macro_tint(vertices: NDArray[np.float64], look: Look) -> NDArray[np.float32]:
    """Slow changes of colour over centimetres: float32 [V, 3] linear albedo."""
    rng = np.random.default_rng([look.texture_seed, 13])
    waves = 16
    direction = rng.normal(size=(waves, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    length = np.exp(rng.uniform(np.log(10), np.log(70), waves))
    phase = vertices @ (direction * (2 * np.pi / length[:, None])).T + rng.uniform(0, 2 * np.pi, waves)
    wave = np.sin(phase)
    common = wave[:, : waves // 2].sum(1) / np.sqrt(waves / 4)
    hue = wave[:, waves // 2 :].sum(1) / np.sqrt(waves / 4)
    m = look.macro
    tint = np.stack([1 + 0.5 * m * common, 1 + m * common + 0.8 * m * hue, 1 + m * common + 0.6 * m * hue], -1)
    return (np.clip(tint, 0.4, 1.8) * np.array(look.base)).astype(np.float32)
