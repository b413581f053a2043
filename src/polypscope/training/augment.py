"""Augmentation of endoscopy frames: geometry, colour, and what only an endoscope does to a picture.

Everything works on uint8 RGB and uint8 masks with OpenCV, takes a `numpy.random.Generator`, and is a pure function of
it: the same seed gives the same picture, so that a resumed run sees what an uninterrupted one would have seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import ConfigDict

Image = NDArray[np.uint8]
DARK = 16  # black surrounds and the deep lumen stay below this in every channel


@dataclass(frozen=True)
class AugmentSpec:
    """How strong each family is; 0 switches it off. Also the `[augment]` table of a training recipe."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # a misspelt key in a recipe is an error

    scale: tuple[float, float] = (0.55, 1.7)
    rotate_deg: float = 180.0
    aspect: float = 0.25
    shift: float = 0.15
    colour: float = 1.0
    exchange: float = 0.0
    degrade: float = 0.35
    soften: float = 0.0
    highlights: float = 0.15
    overlay: float = 0.15
    field_of_view: float = 0.15
    paste: float = 0.35
    empty: float = 0.0


def geometric(rgb: Image, mask: Image, size: int, rng: Generator, spec: AugmentSpec) -> tuple[Image, Image]:
    """Flip, rotate, scale, stretch, shift and resample to (size, size) in one interpolation."""
    height, width = mask.shape
    scale = float(np.exp(rng.uniform(*np.log(spec.scale))))
    stretch = float(np.exp(rng.uniform(-spec.aspect, spec.aspect)))
    # Small turns are common, any turn is possible: an endoscope has no "up".
    angle = np.deg2rad(rng.uniform(-1, 1) * (spec.rotate_deg if rng.random() < 0.5 else min(spec.rotate_deg, 20.0)))
    sx, sy = size / width * scale * stretch, size / height * scale / stretch
    if rng.random() < 0.5:
        sx = -sx
    if rng.random() < 0.5:
        sy = -sy
    cos, sin = np.cos(angle), np.sin(angle)
    matrix = np.array([[cos * sx, -sin * sy], [sin * sx, cos * sy]])
    centre = np.array([width / 2, height / 2]) + rng.uniform(-spec.shift, spec.shift, 2) * (width, height)
    offset = np.array([size / 2, size / 2]) - matrix @ centre
    affine = np.column_stack([matrix, offset])
    border = cv2.BORDER_CONSTANT if rng.random() < 0.5 else cv2.BORDER_REFLECT_101
    if scale < 0.8:
        sigma = 0.4 * (width / (size * scale))
        rgb = cv2.GaussianBlur(rgb, (0, 0), sigma) if sigma > 0.3 else rgb
    rgb = cv2.warpAffine(rgb, affine, (size, size), flags=cv2.INTER_LINEAR, borderMode=border)
    mask = cv2.warpAffine(mask, affine, (size, size), flags=cv2.INTER_LINEAR, borderMode=border)
    return rgb, mask


def colour(rgb: Image, rng: Generator, strength: float) -> Image:
    """Gamma, gain and offset per channel, saturation, hue; rarely grey or a narrow-band look."""
    if strength <= 0:
        return rgb
    ramp = np.arange(256, dtype=np.float64) / 255
    gamma = np.exp(rng.normal(0, 0.25 * strength))
    gain = np.exp(rng.normal(0, 0.12 * strength)) * np.exp(rng.normal(0, 0.09 * strength, 3))
    offset = rng.normal(0, 0.03 * strength, 3)
    table = np.stack([ramp**gamma * gain[c] + offset[c] for c in range(3)], axis=1)
    rgb = cv2.LUT(rgb, np.clip(table * 255, 0, 255).astype(np.uint8).reshape(256, 1, 3))
    if rng.random() < 0.7:
        hsv = cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV)
        levels = np.arange(256)
        hue = (levels + round(rng.normal(0, 6 * strength))) % 180
        saturation = np.clip(levels * np.exp(rng.normal(0, 0.3 * strength)), 0, 255)
        table = np.stack([hue, saturation, levels], axis=1).astype(np.uint8).reshape(256, 1, 3)
        rgb = cv2.cvtColor(cv2.LUT(hsv, table), cv2.COLOR_HSV2RGB)
    draw = rng.random()
    if draw < 0.04 * strength:
        rgb = cv2.cvtColor(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    elif draw < 0.08 * strength:
        # Narrow-band imaging shows blue and green light only, mapped to other channels.
        rgb = np.ascontiguousarray(rgb[..., [1, 2, 2]])
    return rgb


def exchange(rgb: Image, donor: Image, rng: Generator) -> Image:
    """The picture in the colours of another one: mean and spread of each Lab channel move towards the donor's.

    Clinics differ in light, white balance and exposure. Pictures that trade colours tell a network that polyps are not
    known by them ("colour exchange" of Wei et al., Shallow Attention Network for Polyp Segmentation, 2021). Black
    surrounds are left out of the statistics and stay black.
    """
    told = []
    for picture in (rgb, donor):
        sample = np.ascontiguousarray(picture[::4, ::4])
        lab = cv2.cvtColor(sample, cv2.COLOR_RGB2LAB)[sample.max(-1) > DARK]
        if len(lab) < 50:
            return rgb
        told.append((lab.mean(0), lab.std(0) + 1.0))
    (mean, spread), (donor_mean, donor_spread) = told
    amount = rng.uniform(0.4, 1.0)
    # Spreads move only so far: coloured panels have a large one, which would turn highlights green.
    wider = np.clip(donor_spread / spread, 0.6, 1.4) ** amount
    levels = (np.arange(256)[:, None] - mean) * wider + mean + amount * (donor_mean - mean)
    table = np.clip(np.rint(levels), 0, 255).astype(np.uint8).reshape(256, 1, 3)
    moved = cv2.cvtColor(cv2.LUT(cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB), table), cv2.COLOR_LAB2RGB)
    return np.where(rgb.max(-1, keepdims=True) > DARK, moved, rgb)


def degrade(rgb: Image, rng: Generator) -> Image:
    """One of: defocus, motion blur, low resolution, sensor noise, JPEG blocks."""
    kind = rng.integers(5)
    size = rgb.shape[0]
    if kind == 0:
        return cv2.GaussianBlur(rgb, (0, 0), rng.uniform(0.5, 2.2) * size / 320)
    if kind == 1:
        length = int(rng.integers(3, 12)) | 1
        kernel = np.zeros((length, length), np.float32)
        angle = rng.uniform(0, np.pi)
        half = length // 2
        dx, dy = round(np.cos(angle) * half), round(np.sin(angle) * half)
        cv2.line(kernel, (half - dx, half - dy), (half + dx, half + dy), 1.0)
        return cv2.filter2D(rgb, -1, kernel / kernel.sum())
    if kind == 2:
        factor = rng.uniform(0.35, 0.8)
        small = cv2.resize(rgb, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
        return cv2.resize(small, rgb.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    if kind == 3:
        noise = rng.normal(0, rng.uniform(2, 10), rgb.shape).astype(np.float32)
        return np.clip(rgb + noise, 0, 255).astype(np.uint8)
    _, data = cv2.imencode(".jpg", rgb, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(20, 70))])
    return cv2.imdecode(data, cv2.IMREAD_COLOR)


def soften(rgb: Image, rng: Generator) -> Image:
    """The look of an older or enlarged picture: no detail finer than some pixels, down to what only shape tells.

    Data sets differ more in this than in colour: the 95th percentile of the gradient is 18 on Kvasir-SEG and 4 on
    CVC-300 (`polypscope datasets realism`), and a network that has only seen sharp mucosa looks for texture that is
    not there.
    """
    size = rgb.shape[0]
    coarse_px = float(np.exp(rng.uniform(np.log(0.7), np.log(5.0)))) * size / 320
    if rng.random() < 0.6:
        return cv2.GaussianBlur(rgb, (0, 0), coarse_px)
    side = max(24, round(size / (2 * coarse_px)))
    small = cv2.resize(rgb, (side, side), interpolation=cv2.INTER_AREA)
    return cv2.resize(small, (size, size), interpolation=cv2.INTER_CUBIC)


def highlights(rgb: Image, rng: Generator) -> Image:
    """Specular reflections: small saturated blobs with a soft rim, as wet mucosa shows them."""
    layer = np.zeros(rgb.shape[:2], np.uint8)
    size = rgb.shape[0]
    for _ in range(int(rng.integers(3, 25))):
        centre = tuple(int(v) for v in rng.integers(0, size, 2))
        axes = tuple(int(v) for v in np.maximum(1, rng.exponential(size / 90, 2)))
        cv2.ellipse(layer, centre, axes, float(rng.uniform(0, 180)), 0, 360, 255, -1)
    glow = cv2.GaussianBlur(layer, (0, 0), 1.2)[..., None].astype(np.float32) / 255
    return (rgb + (255 - rgb.astype(np.float32)) * glow * rng.uniform(0.7, 1.0)).astype(np.uint8)


def overlay(rgb: Image, rng: Generator) -> Image:
    """Burned-in text and picture-in-picture boxes as video processors draw them."""
    rgb = rgb.copy()
    size = rgb.shape[0]
    shade = [(255, 255, 255), (0, 255, 0), (255, 255, 0), (200, 200, 200)][int(rng.integers(4))]
    for _ in range(int(rng.integers(1, 5))):
        text = "".join(rng.choice(list("0123456789:/ABCDEFGHI.-"), int(rng.integers(3, 12))))
        origin = (int(rng.integers(0, size)), int(rng.integers(10, size)))
        cv2.putText(rgb, text, origin, cv2.FONT_HERSHEY_SIMPLEX, float(rng.uniform(0.25, 0.6)), shade, 1, cv2.LINE_AA)
    if rng.random() < 0.4:
        width, height = int(size * rng.uniform(0.1, 0.35)), int(size * rng.uniform(0.1, 0.35))
        x, y = (0 if rng.random() < 0.7 else size - width), (size - height if rng.random() < 0.7 else 0)
        fill = (20, 120, 60) if rng.random() < 0.5 else (0, 0, 0)
        cv2.rectangle(rgb, (x, y), (x + width, y + height), fill, -1)
    return rgb


def field_of_view(rgb: Image, mask: Image, rng: Generator) -> tuple[Image, Image]:
    """Black corners: the round or octagonal window in which a processor shows the picture."""
    size = rgb.shape[0]
    window = np.zeros((size, size), np.uint8)
    centre = tuple(int(size / 2 + v) for v in rng.normal(0, size * 0.03, 2))
    if rng.random() < 0.5:
        cv2.circle(window, centre, int(size * rng.uniform(0.45, 0.65)), 1, -1)
    else:
        half, cut = size * rng.uniform(0.44, 0.52), size * rng.uniform(0.08, 0.25)
        corners = [(-half + cut, -half), (half - cut, -half), (half, -half + cut), (half, half - cut)]
        corners += [(half - cut, half), (-half + cut, half), (-half, half - cut), (-half, -half + cut)]
        cv2.fillPoly(window, [np.array([(centre[0] + x, centre[1] + y) for x, y in corners], np.int32)], 1)
    return rgb * window[..., None], mask * window


def paste(rgb: Image, mask: Image, donor: Image, donor_mask: Image, rng: Generator) -> tuple[Image, Image]:
    """Put the donor's polyp, turned, rescaled and recoloured to its new surroundings, onto this mucosa.

    The picture is returned unchanged when there is no polyp to paste or no lit mucosa to paste it on.
    """
    ys, xs = np.nonzero(donor_mask > 127)
    if len(ys) < 60:
        return rgb, mask
    size = rgb.shape[0]
    pad = 6
    y0, y1 = max(0, ys.min() - pad), min(donor.shape[0], ys.max() + pad)
    x0, x1 = max(0, xs.min() - pad), min(donor.shape[1], xs.max() + pad)
    patch, alpha = donor[y0:y1, x0:x1], donor_mask[y0:y1, x0:x1]
    target = size * np.exp(rng.uniform(np.log(0.07), np.log(0.4)))
    scale = min(target / max(patch.shape[:2]), 1.6)
    angle = rng.uniform(0, 360)
    ph, pw = patch.shape[:2]
    reach = max(8, int(np.hypot(ph, pw) * scale) + 2)
    turn = cv2.getRotationMatrix2D((pw / 2, ph / 2), angle, scale)
    turn[:, 2] += reach / 2 - np.array([pw / 2, ph / 2])
    if reach >= size:
        return rgb, mask
    if scale < 0.7:
        patch = cv2.GaussianBlur(patch, (0, 0), 0.45 / scale)
    patch = cv2.warpAffine(patch, turn, (reach, reach), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
    alpha = cv2.warpAffine(alpha, turn, (reach, reach), flags=cv2.INTER_LINEAR)
    for _ in range(8):
        x, y = (int(v) for v in rng.integers(0, size - reach + 1, 2))
        place = rgb[y : y + reach, x : x + reach]
        inside = alpha > 127
        if not inside.any():
            return rgb, mask
        ring = cv2.dilate(inside.astype(np.uint8), np.ones((7, 7), np.uint8)).astype(bool)
        lit = place[ring].mean()
        if lit > 45 and (mask[y : y + reach, x : x + reach][ring] > 127).mean() < 0.05:
            break
    else:
        return rgb, mask
    # Half of the way to the colour of the new surroundings: polyps differ from their mucosa, but share its light.
    amount = rng.uniform(0.3, 0.9)
    moved = patch.astype(np.float32) * (1 + amount * (place[ring].mean(0) / (patch[inside].mean(0) + 1) - 1))
    soft = cv2.GaussianBlur(alpha, (0, 0), max(0.8, reach / 60))[..., None].astype(np.float32) / 255
    rgb, mask = rgb.copy(), mask.copy()
    rgb[y : y + reach, x : x + reach] = np.clip(place * (1 - soft) + moved * soft, 0, 255)
    mask[y : y + reach, x : x + reach] = np.maximum(mask[y : y + reach, x : x + reach], alpha)
    return rgb, mask


def part(rgb: Image, mask: Image, positive: bool, rng: Generator, tries: int = 20) -> Image | None:
    """A square part of a square picture that surely shows a polyp, or surely none; None if it was not found."""
    side = mask.shape[0]
    polyp = mask > 127
    near = cv2.dilate(polyp.astype(np.uint8), np.ones((9, 9), np.uint8))
    for _ in range(tries):
        size = int(side * rng.uniform(0.4, 0.85))
        y, x = (int(v) for v in rng.integers(0, side - size + 1, 2))
        window = np.s_[y : y + size, x : x + size]
        if rgb[window].mean() < 50:
            continue
        if not positive and not near[window].any():
            return rgb[window]
        if positive and polyp[window].sum() > max(0.6 * polyp.sum(), 0.004 * size * size):
            return rgb[window]
    return None


def augment(
    rgb: Image, mask: Image, size: int, rng: Generator, spec: AugmentSpec, donor: tuple[Image, Image] | None = None
) -> tuple[Image, Image]:
    """One training picture (size, size, 3) and its mask (size, size), both uint8."""
    # Real frames without a polyp are rare, so now and then a picture is a part that shows none.
    if spec.empty and rng.random() < spec.empty and (clear := part(rgb, mask, False, rng)) is not None:
        rgb, mask, donor = clear, np.zeros(clear.shape[:2], np.uint8), None
    rgb, mask = geometric(rgb, mask, size, rng, spec)
    if donor is not None and rng.random() < spec.paste:
        rgb, mask = paste(rgb, mask, *donor, rng)
    if donor is not None and spec.exchange and rng.random() < spec.exchange:
        rgb = exchange(rgb, donor[0], rng)
    rgb = colour(rgb, rng, spec.colour)
    if rng.random() < spec.highlights:
        rgb = highlights(rgb, rng)
    if spec.soften and rng.random() < spec.soften:
        rgb = soften(rgb, rng)
    if rng.random() < spec.degrade:
        rgb = degrade(rgb, rng)
    if rng.random() < spec.field_of_view:
        rgb, mask = field_of_view(rgb, mask, rng)
    if rng.random() < spec.overlay:
        rgb = overlay(rgb, rng)
    return rgb, mask
