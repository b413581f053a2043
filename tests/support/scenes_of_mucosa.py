"""Pictures of mucosa with a known answer, for the hand-crafted methods."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]


def flat(width: int, height: int, grey: int = 120) -> Rgb:
    """One colour."""
    return np.full((height, width, 3), grey, np.uint8)


def mucosa(width: int, height: int, *, seed: int = 0, shade: NDArray[np.float32] | None = None) -> Rgb:
    """Reddish, softly uneven, with sensor noise; `shade` (H, W) multiplies its brightness."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(0, 1, (6, 8)).astype(np.float32)
    uneven = 1 + 0.06 * cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    light = uneven if shade is None else uneven * shade
    rgb = light[..., None] * np.array([185, 105, 80], np.float32)
    return np.clip(rgb + rng.normal(0, 4, rgb.shape), 0, 255).astype(np.uint8)


def bright_disk(width: int, height: int, centre: tuple[float, float], radius: float, *, seed: int = 0) -> Rgb:
    """Mucosa with a bright disk and a dark rim around it: a polyp as the hand-crafted methods imagine it."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    distance = np.hypot(x - centre[0], y - centre[1])
    rim = np.exp(-(((distance - radius) / (0.12 * radius)) ** 2))
    inside = 1 / (1 + np.exp((distance - 0.9 * radius) / (0.1 * radius)))
    return mucosa(width, height, seed=seed, shade=(1 + 0.15 * inside - 0.4 * rim).astype(np.float32))
