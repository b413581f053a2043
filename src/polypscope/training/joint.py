"""Segmenter, presence head and depth head trained together: real pictures and simulated frames in every batch.

The encoder is shared at run time, so it is taught by all of them: outlines by every picture, "is there a polyp at all"
by every picture, depth by the simulated ones, whose truth is exact.
"""

from __future__ import annotations

import cv2
import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from polypscope.models.depth_head import DepthHead
from polypscope.models.pns_plus_stream import StreamSegmenter
from polypscope.training.augment import Image, colour
from polypscope.training.clips import spoil
from polypscope.training.config import Simulated
from polypscope.training.data import Draw, Stills
from polypscope.training.losses import deep_supervision, depth_loss
from polypscope.training.simulated import RAY_SIDE_PX, Shard, shard_paths

Item = tuple[Tensor, Tensor, Tensor, Tensor]
SEEN = 5e-4  # share of the picture below which nobody could say that there is a polyp


def simulated_count(batch: int, settings: Simulated) -> int:
    """How many pictures of a batch are simulated: they are its last ones."""
    return min(batch - 1, max(1, round(batch * settings.share)))


def turned(
    rgb: Image, mask: Image, ray_mm: NDArray[np.float32], rays: NDArray[np.float32], rng: Generator
) -> tuple[Image, Image, NDArray[np.float32], NDArray[np.float32]]:
    """One of the eight flips and quarter turns; the viewing rays turn with the picture."""
    if rng.random() < 0.5:
        rgb, mask, ray_mm, rays = (np.swapaxes(array, 0, 1) for array in (rgb, mask, ray_mm, rays))
        rays = rays[..., [1, 0, 2]]
    if rng.random() < 0.5:
        rgb, mask, ray_mm = rgb[:, ::-1], mask[:, ::-1], ray_mm[:, ::-1]
        rays = rays[:, ::-1] * np.array([-1, 1, 1], np.float32)
    if rng.random() < 0.5:
        rgb, mask, ray_mm = rgb[::-1], mask[::-1], ray_mm[::-1]
        rays = rays[::-1] * np.array([1, -1, 1], np.float32)
    return rgb, mask, ray_mm, rays


def zoomed(
    rgb: Image, mask: Image, ray_mm: NDArray[np.float32], rays: NDArray[np.float32], size: int, rng: Generator
) -> tuple[Image, Image, NDArray[np.float32], NDArray[np.float32]]:
    """A part of the picture resampled to `size`, with the depth at a quarter of it and the rays that belong to it."""
    # Half a coarse cell stays clear of the edge, where the rays would have to be guessed.
    rim = 0.5 / RAY_SIDE_PX
    wide = float(rng.uniform(0.6, 1 - 2 * rim)) if rng.random() < 0.5 else 1.0
    left, top = rng.uniform(rim, 1 - rim - wide, 2) if wide < 1 else (0.0, 0.0)

    def sampled(array: np.ndarray, side: int, flags: int) -> np.ndarray:
        full = array.shape[0]
        step = wide * full / side
        # Pixel centres: output i shows the input at (left + (i + 0.5) / side * wide) * full - 0.5.
        to_input = np.array([[step, 0, left * full + 0.5 * step - 0.5], [0, step, top * full + 0.5 * step - 0.5]])
        source = np.ascontiguousarray(array)
        return cv2.warpAffine(source, to_input, (side, side), flags=flags | cv2.WARP_INVERSE_MAP, borderMode=1)

    if wide == 1.0:
        rgb = cv2.resize(np.ascontiguousarray(rgb), (size, size), interpolation=cv2.INTER_AREA)
    else:
        rgb = sampled(rgb, size, cv2.INTER_LINEAR)
    field = sampled(rays, RAY_SIDE_PX, cv2.INTER_LINEAR)
    return (
        rgb,
        sampled(mask, size, cv2.INTER_LINEAR),
        sampled(ray_mm, size // 4, cv2.INTER_NEAREST),
        field / np.linalg.norm(field, axis=-1, keepdims=True),
    )


class Mixed(Dataset[Item]):
    """Real pictures with an item number from 0 on, simulated ones below: rgb, mask, ray_mm (NaN if real), rays."""

    def __init__(self, stills: Stills, settings: Simulated) -> None:
        self.stills = stills
        self.paths = shard_paths(settings.folder)

    def __len__(self) -> int:
        return len(self.stills)

    def __getitem__(self, draw: Draw) -> Item:
        if draw.item >= 0:
            rgb, mask = self.stills[draw]
            side = draw.size // 4
            return rgb, mask, torch.full((side, side), torch.nan), torch.zeros(3, RAY_SIDE_PX, RAY_SIDE_PX)
        cv2.setNumThreads(0)
        rng = np.random.default_rng(draw.seed)
        shard = Shard.load(self.paths[rng.integers(len(self.paths))])
        clip, frame = (int(rng.integers(count)) for count in shard.mask.shape[:2])
        views = shard.rgb[clip, frame], shard.mask[clip, frame], shard.ray_mm[clip, frame].astype(np.float32)
        rgb_, mask_, ray_mm, rays = zoomed(*turned(*views, shard.directions, rng), draw.size, rng)
        # Strong changes of colour and exposure would hide how near the light is.
        rgb_ = spoil(colour(np.ascontiguousarray(rgb_), rng, 0.4), rng, 0.15)
        return (
            torch.from_numpy(rgb_).permute(2, 0, 1),
            torch.from_numpy(mask_)[None],
            torch.from_numpy(ray_mm),
            torch.from_numpy(np.ascontiguousarray(rays.astype(np.float32))).permute(2, 0, 1),
        )


class Joint(nn.Module):
    """The segmenter with a depth head; one forward pass for everything that is learnt."""

    def __init__(self, segmenter: StreamSegmenter) -> None:
        super().__init__()
        self.segmenter = segmenter
        segmenter.presence.requires_grad_(True)
        nn.init.normal_(segmenter.presence.judge[2].weight, std=0.05)
        nn.init.zeros_(segmenter.presence.judge[2].bias)
        _, c4, c8, _, _ = segmenter.encoder.channels
        self.depth = DepthHead((c4, c8))

    def forward(self, x: Tensor, rays: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """x (B, 3, S, S) and the rays of its last n pictures (n, 3, h, w) → mask levels, presence, depth of those n."""
        features = self.segmenter.encode(x)
        levels = self.segmenter.decode(*features)
        n = len(rays)
        depth = self.depth(*(level[-n:] for level in features[:2]), x[-n:], rays)
        return levels, self.segmenter.presence(features[2]), depth


def joint_loss(
    levels: list[Tensor], presence: Tensor, depth: Tensor, mask: Tensor, ray_mm: Tensor, settings: Simulated
) -> tuple[Tensor, Tensor]:
    """Total loss, and of it the depth part before weighting; mask (B, 1, S, S) and ray_mm (n, S/4, S/4)."""
    truth = mask.float() / 255
    outlined = deep_supervision(levels, truth)
    share = truth.mean((2, 3))
    told = nn.functional.binary_cross_entropy_with_logits(presence.float(), (share > 0).float(), reduction="none")
    sure = ((share == 0) | (share > SEEN)).float()
    polyp = nn.functional.interpolate(truth[-len(ray_mm) :], size=ray_mm.shape[-2:], mode="area")[:, 0]
    measured = depth_loss(depth.float(), ray_mm, 1 + 3 * polyp)
    present = (told * sure).sum() / sure.sum().clamp(min=1)
    return outlined + settings.depth_weight * measured + settings.presence_weight * present, measured.detach()
