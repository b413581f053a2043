"""Training pictures drawn here: pink noise with one darker disc each, and its mask."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np


def draw_pairs(root: Path, count: int, size: int = 32) -> None:
    """Write `count` pictures and masks of `size` pixels to `root/images` and `root/masks`."""
    rng = np.random.default_rng(0)
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True)
    for index in range(count):
        mask = np.zeros((size, size), np.uint8)
        centre = tuple(int(v) for v in rng.integers(size // 4, 3 * size // 4, 2))
        cv2.circle(mask, centre, int(rng.integers(size // 8, size // 4)), 255, -1)
        picture = np.full((size, size, 3), (120, 120, 200), np.float32) + rng.normal(0, 8, (size, size, 3))
        picture[mask > 0] *= 0.45
        cv2.imwrite(str(root / "images" / f"{index}.png"), np.clip(picture, 0, 255).astype(np.uint8))
        cv2.imwrite(str(root / "masks" / f"{index}.png"), mask)
