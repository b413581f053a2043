"""What a whole picture looks like in a few numbers: CEDD and FCTH, joined to JCD, and Tamura's features.

CEDD (colour and edge directivity, Chatzichristofis and Boutalis, ICVS 2008) and FCTH (fuzzy colour and texture,
WIAMIS 2008) count blocks of a picture by 24 fuzzy colours and by what kind of edge or texture they hold; JCD joins both
(AMIR 2009). Here a picture is first brought to 160×160 pixels, so that it has the 40×40 blocks of the papers at 4×4
pixels each, and histograms stay real numbers where the papers round them to three bits.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["JCD", "TAMURA", "cedd", "fcth", "fuzzy_colours", "jcd", "tamura", "tanimoto"]

Values = NDArray[np.float64]
BLOCKS = 40
JCD, TAMURA = 168, 18  # lengths of both descriptors
_BLOCK_PX = 4

# Trapezoids of membership: rises from the first to the second number, falls from the third to the fourth.
_HUES = (
    (0, 0, 5, 10), (5, 10, 35, 50), (35, 50, 70, 85), (70, 85, 150, 165), (150, 165, 195, 205), (195, 205, 265, 280),
    (265, 280, 315, 330), (315, 330, 360, 360),
)  # fmt: skip
_COLOUR_OF_HUE = (0, 1, 2, 3, 4, 5, 6, 0)  # red begins and ends the circle
_PALE_FULL = ((0, 0, 10, 75), (10, 75, 255, 255))
_BLACK_GREY_WHITE = ((0, 0, 10, 75), (10, 75, 180, 220), (180, 220, 255, 255))
_WEAK_STRONG = ((0, 0, 68, 188), (68, 188, 255, 255))
_ROUGHNESS = ((0, 0, 20, 90), (20, 90, 255, 255))
_FLAT_ROUGH = (_ROUGHNESS, _ROUGHNESS, ((0, 0, 20, 80), (20, 80, 255, 255)))


def jcd(rgb: NDArray[np.uint8]) -> Values:
    """Joint composite descriptor of a picture, float64 (168,) that sums to about 1.

    Seven kinds of texture by 24 colours: flat, horizontal, 45°, vertical, 135°, rough both ways, and edges without
    direction. Where CEDD and FCTH both know a kind, their mean counts.
    """
    edges, textures = cedd(rgb).reshape(6, 24), fcth(rgb).reshape(8, 24)
    # FCTH's first bit, the energy along one axis, is given up to match CEDD's kinds.
    folded = textures[:4] + textures[4:]
    flat, along, across, both = folded
    no_edge, no_direction, horizontal, vertical, rising, falling = edges
    joined = [
        (flat + no_edge) / 2, (along + horizontal) / 2, rising, (across + vertical) / 2, falling, both, no_direction,
    ]  # fmt: skip
    return np.concatenate(joined)


def cedd(rgb: NDArray[np.uint8]) -> Values:
    """Colour and edge directivity descriptor, float64 (144,) = 6 kinds of edge × 24 colours, of sum 1.

    The MPEG-7 edge filters look at the four quarters of each block; a block without a strong answer has no edge, and
    otherwise counts for every filter that answers nearly as strongly as the strongest.
    """
    blocks = _blocks(rgb)
    grey = blocks @ np.array([0.299, 0.587, 0.114])
    half = _BLOCK_PX // 2
    a, b = grey[:, :half, :half].mean(axis=(1, 2)), grey[:, :half, half:].mean(axis=(1, 2))
    c, d = grey[:, half:, :half].mean(axis=(1, 2)), grey[:, half:, half:].mean(axis=(1, 2))
    root = np.sqrt(2)
    answers = np.abs([2 * (a - b - c + d), a + b - c - d, a - b + c - d, root * (a - d), root * (b - c)])
    strongest = answers.max(axis=0)
    no_edge = strongest < 14
    near = answers / np.maximum(strongest, 1e-9) > np.array([0.68, 0.98, 0.98, 0.98, 0.98])[:, None]
    kinds = np.concatenate([no_edge[None], near & ~no_edge]).astype(np.float64)
    table = kinds @ fuzzy_colours(blocks.mean(axis=(1, 2)))
    return np.asarray((table / max(table.sum(), 1e-9)).ravel())


def fcth(rgb: NDArray[np.uint8]) -> Values:
    """Fuzzy colour and texture histogram, float64 (192,) = 8 textures × 24 colours, of sum 1.

    The texture of a block is which of its three bands of high frequency (Haar) have energy.
    """
    blocks = _blocks(rgb)
    grey = blocks @ np.array([0.299, 0.587, 0.114])
    a, b, c, d = grey[:, ::2, ::2], grey[:, ::2, 1::2], grey[:, 1::2, ::2], grey[:, 1::2, 1::2]
    bands = ((a + b - c - d) / 2, (a - b + c - d) / 2, (a - b - c + d) / 2)
    energies = [np.sqrt((band**2).mean(axis=(1, 2))) for band in bands]
    members = [_members(energy, sets) for energy, sets in zip(energies, _FLAT_ROUGH, strict=True)]
    kinds = np.stack(
        [
            np.minimum(np.minimum(members[0][i], members[1][j]), members[2][k])
            for i in (0, 1)
            for j in (0, 1)
            for k in (0, 1)
        ]
    )
    table = kinds @ fuzzy_colours(blocks.mean(axis=(1, 2)))
    return np.asarray((table / max(table.sum(), 1e-9)).ravel())


def fuzzy_colours(rgb: Values) -> Values:
    """Membership of colours (n, 3) in 24 fuzzy ones, float64 (n, 24): white, grey, black, then for each of red, orange,
    yellow, green, cyan, blue and magenta a light, a full and a dark one."""
    hue, saturation, value = _hsv(rgb)
    hues = _members(hue, _HUES)
    pale, full = _members(saturation, _PALE_FULL)
    black, grey, white = _members(value, _BLACK_GREY_WHITE)
    # Every rule takes the least of its memberships, and every hue has the same rules for what has no colour.
    ten = np.zeros((10, len(rgb)))
    for k, member in enumerate(hues):
        ten[0] += _least(member, pale, white)
        ten[1] += _least(member, pale, grey)
        ten[2] += _least(member, pale, black) + _least(member, full, black)
        ten[3 + _COLOUR_OF_HUE[k]] += _least(member, full, grey) + _least(member, full, white)
    dull, vivid = _members(saturation, _WEAK_STRONG)
    dim, bright = _members(value, _WEAK_STRONG)
    shades = (np.minimum(dull, bright), np.minimum(vivid, bright), np.minimum(dull, dim) + np.minimum(vivid, dim))
    out = [ten[0], ten[1], ten[2]]
    for colour in ten[3:]:
        out += [colour * shade for shade in shades]
    return np.stack(out, axis=1)


def tamura(rgb: NDArray[np.uint8]) -> Values:
    """Coarseness, contrast and sixteen directions of a picture, float64 (18,) (Tamura, Mori and Yamawaki 1978)."""
    grey = (_small(rgb).astype(np.float64)) @ np.array([0.299, 0.587, 0.114])
    best, size = np.zeros(grey.shape), np.ones(grey.shape)
    for k in range(1, 6):
        side = 2**k
        mean = cv2.blur(grey, (side, side), borderType=cv2.BORDER_REFLECT)
        shift = side // 2
        for axis in (0, 1):
            change = np.abs(np.roll(mean, -shift, axis) - np.roll(mean, shift, axis))
            better = change > best * 1.0001
            best, size = np.where(better, change, best), np.where(better, side, size)
    deviation = grey.std()
    fourth = ((grey - grey.mean()) ** 4).mean()
    contrast = deviation**2 / fourth**0.25 if fourth > 1e-9 else 0.0  # σ / κ^¼
    gx = cv2.filter2D(grey, -1, np.array([[-1, 0, 1]] * 3, np.float64))
    gy = cv2.filter2D(grey, -1, np.array([[-1] * 3, [0] * 3, [1] * 3], np.float64))
    strong = (np.abs(gx) + np.abs(gy)) / 2 >= 12
    angle = np.mod(np.arctan2(gy[strong], gx[strong]) + np.pi / 2, np.pi)
    directions = np.histogram(angle, bins=16, range=(0, np.pi))[0] / max(1, int(strong.sum()))
    return np.concatenate([[size.mean(), contrast], directions])


def tanimoto(one: Values, others: Values) -> Values:
    """Distance in [0, 1] of a histogram (k,) to each of others (n, k): 1 - x·y / (x² + y² - x·y)."""
    product = others @ one
    below = one @ one + (others**2).sum(axis=1) - product
    return np.asarray(1 - product / np.maximum(below, 1e-12))


def _small(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    side = BLOCKS * _BLOCK_PX
    method = cv2.INTER_AREA if min(rgb.shape[:2]) >= side else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(rgb, (side, side), interpolation=method), dtype=np.uint8)


def _blocks(rgb: NDArray[np.uint8]) -> Values:
    """Blocks of a picture, float64 (1600, 4, 4, 3)."""
    small = _small(rgb).astype(np.float64).reshape(BLOCKS, _BLOCK_PX, BLOCKS, _BLOCK_PX, 3)
    return np.asarray(small.transpose(0, 2, 1, 3, 4).reshape(-1, _BLOCK_PX, _BLOCK_PX, 3))


def _hsv(rgb: Values) -> tuple[Values, Values, Values]:
    """Hue in degrees, saturation and value from 0 to 255."""
    high, low = rgb.max(axis=1), rgb.min(axis=1)
    spread = np.maximum(high - low, 1e-9)
    r, g, b = rgb.T
    hue = np.where(
        high == r, np.mod((g - b) / spread, 6), np.where(high == g, (b - r) / spread + 2, (r - g) / spread + 4)
    )
    hue = np.where(high - low < 1e-9, 0.0, 60 * hue)
    return hue, 255 * (high - low) / np.maximum(high, 1e-9), high


def _members(values: Values, sets: tuple[tuple[int, int, int, int], ...]) -> list[Values]:
    out = []
    for start, full, fall, end in sets:
        rise = (values - start) / (full - start) if full > start else np.ones_like(values)
        down = (end - values) / (end - fall) if end > fall else np.ones_like(values)
        out.append(np.clip(np.minimum(rise, down), 0.0, 1.0))
    return out


def _least(*members: Values) -> Values:
    return np.asarray(np.minimum.reduce(members))
