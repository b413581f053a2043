"""Clips for the memory: stills moved by a smooth random camera, and simulated sequences."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from polypscope.training.augment import AugmentSpec, Image, colour, degrade, highlights
from polypscope.training.simulated import Shard, shard_paths


def smooth_motion(frames: int, size: int, rng: Generator, strength: float = 1.0) -> list[NDArray[np.float64]]:
    """Affine 2x3 maps of a hand-held camera: position, angle and zoom drift with constant speed plus a little sway."""
    speed = rng.normal(0, [0.02, 0.02, 0.03, 0.02], 4) * strength
    sway = rng.normal(0, [0.006, 0.006, 0.008, 0.006], (frames, 4)) * strength
    path = np.arange(frames)[:, None] * speed + sway
    maps = []
    for x, y, angle, zoom in path:
        turn = cv2.getRotationMatrix2D((size / 2, size / 2), float(np.degrees(angle)), float(np.exp(zoom)))
        turn[:, 2] += np.array([x, y]) * size
        maps.append(turn)
    return maps


def clip_from_still(
    rgb: Image, mask: Image, frames: int, rng: Generator, spec: AugmentSpec
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A clip (T, S, S, 3) and its masks (T, S, S) from one augmented picture of size S.

    Some frames are spoilt one by one, by blur, highlights or exposure, because that is what a memory is for.
    """
    size = mask.shape[0]
    pictures, masks = [], []
    for matrix in smooth_motion(frames, size, rng):
        picture = cv2.warpAffine(rgb, matrix, (size, size), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
        truth = cv2.warpAffine(mask, matrix, (size, size), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
        pictures.append(spoil(picture, rng))
        masks.append(truth)
    return np.stack(pictures), np.stack(masks)


def spoil(picture: Image, rng: Generator, chance: float = 0.45) -> Image:
    """Maybe blur, flood with highlights, or change the exposure of one frame."""
    if rng.random() < chance:
        picture = degrade(picture, rng)
    if rng.random() < chance / 3:
        picture = degrade(degrade(picture, rng), rng)
    if rng.random() < chance / 2:
        picture = highlights(picture, rng)
    if rng.random() < chance / 2:
        picture = colour(picture, rng, 0.6)
    return picture


class SimulatedClips:
    """Shards that `training.simulated` rendered, drawn at random."""

    def __init__(self, folder: Path) -> None:
        self.paths = shard_paths(folder)
        self._kept: dict[Path, Shard] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def draw(
        self, rng: Generator
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
        """rgb (T, S, S, 3), mask (T, S, S), ray_mm (T, h, w) and ray directions (22, 22, 3) of one clip."""
        path = self.paths[rng.integers(len(self.paths))]
        if path not in self._kept:
            self._kept[path] = Shard.load(path)
        shard = self._kept[path]
        clip = int(rng.integers(len(shard.rgb)))
        rgb, mask, ray, rays = shard.rgb[clip], shard.mask[clip], shard.ray_mm[clip], shard.directions
        if rng.random() < 0.5:
            rgb, mask, ray = rgb[:, :, ::-1], mask[:, :, ::-1], ray[:, :, ::-1]
            rays = rays[:, ::-1] * np.array([-1, 1, 1], np.float32)
        if rng.random() < 0.5:
            rgb, mask, ray = rgb[:, ::-1], mask[:, ::-1], ray[:, ::-1]
            rays = rays[::-1] * np.array([1, -1, 1], np.float32)
        # One mild colour change for the whole clip; a strong one would hide how near the light is.
        seed = int(rng.integers(2**62))
        rgb = np.stack([colour(np.ascontiguousarray(f), np.random.default_rng(seed), 0.35) for f in rgb])
        return rgb, mask.copy(), ray.astype(np.float32), rays.copy()
