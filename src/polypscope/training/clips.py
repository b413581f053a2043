"""Clips for the memory: stills moved by a smooth random camera, and simulated sequences."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from polypscope.training.augment import Image, colour, degrade, highlights
from polypscope.training.simulated import Shard


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
    rgb: Image, mask: Image, frames: int, rng: Generator
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A clip (T, S, S, 3) and its masks (T, S, S) from one augmented picture of size S.

    Some frames are spoilt one by one, by blur, highlights or exposure, because that is what a memory is for. The motion
    reaches from that of a video to that of frames sampled from one, of which a memory should expect little.
    """
    size = mask.shape[0]
    pictures, masks = [], []
    strength = float(np.exp(rng.uniform(0, np.log(5))))
    for matrix in smooth_motion(frames, size, rng, strength):
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


def simulated_clip(path: Path, rng: Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """One clip (T, S, S, 3) and its masks (T, S, S) of a rendered shard, mirrored, recoloured and spoilt at random."""
    shard = Shard.load(path)
    clip = int(rng.integers(len(shard.rgb)))
    rgb, mask = shard.rgb[clip], shard.mask[clip]
    if rng.random() < 0.5:
        rgb, mask = rgb[:, :, ::-1], mask[:, :, ::-1]
    if rng.random() < 0.5:
        rgb, mask = rgb[:, ::-1], mask[:, ::-1]
    # One change of colour for the whole clip: a camera keeps its look.
    seed = int(rng.integers(2**62))
    frames = [colour(np.ascontiguousarray(frame), np.random.default_rng(seed), 0.6) for frame in rgb]
    return np.stack([spoil(frame, rng, 0.25) for frame in frames]), mask.copy()
