"""Normalised self-attention over a dilated window of several frames: the NS block of PNSNet (Ji et al. 2021) and PNS+
(Ji et al. 2022), in plain torch operations.

The published block is a CUDA extension. This one gathers each window with a table of indices, so that it runs and
differentiates on any device, takes any map size and exports to ONNX. What the published code does, and the paper does
not say, is kept as named options whose defaults are the published code, because its weights need them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from polypscope.records.errors import UsageError

Aggregation = Literal["raw", "softmax"]


@lru_cache(maxsize=64)
def window_indices(height: int, width: int, radius: int, dilation: int) -> Tensor:
    """For each pixel the places of its window in the flattened map, (H * W, (2 radius + 1)²).

    Places outside the image point to index H * W, where the caller keeps zeros.
    """
    steps = torch.arange(-radius, radius + 1) * dilation
    rows = torch.arange(height)[:, None, None, None] + steps[None, None, :, None]
    columns = torch.arange(width)[None, :, None, None] + steps[None, None, None, :]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    places = torch.where(inside, rows * width + columns, height * width)
    return places.reshape(height * width, -1)


class NSBlock(nn.Module):
    """Queries of some frames, answered from a window around the same place in all memory frames.

    Parameters
    ----------
    channels : channels of the features.
    groups : N of the paper; channels are split into N groups, each with its own dilation.
    dilations : one per group; repeated or cut to fit.
    radius : 3 gives the 7x7 window (the paper's k = 3).
    normalise : layer norm of the query over (channels of a group, H, W).
    norm_size : map size that the norm's affine weights are stored for; (16, 28) is the published one. At another map
        size they are interpolated. None stores one weight per channel.
    soft_attention : multiply the output by the largest softmaxed affinity of any group, frame and place.
    aggregation : "raw" sums values weighted by the scaled affinities themselves, as the published code does;
        "softmax" by their softmax, as equations 4 and 5 of the paper say.
    """

    def __init__(
        self,
        channels: int = 32,
        groups: int = 4,
        dilations: tuple[int, ...] = (1, 2, 1, 2),
        radius: int = 3,
        normalise: bool = True,
        norm_size: tuple[int, int] | None = (16, 28),
        soft_attention: bool = True,
        aggregation: Aggregation = "raw",
    ) -> None:
        super().__init__()
        if channels % groups:
            raise UsageError(f"NS block: expected groups that divide {channels} channels, found {groups}.")
        self.groups, self.radius = groups, radius
        self.dilations = tuple(dilations[i % len(dilations)] for i in range(groups))
        self.normalise, self.soft_attention, self.aggregation = normalise, soft_attention, aggregation
        self.query = nn.Conv2d(channels, channels, 1, bias=False)
        self.key = nn.Conv2d(channels, channels, 1, bias=False)
        self.value = nn.Conv2d(channels, channels, 1, bias=False)
        self.output = nn.Conv2d(channels, channels, 1, bias=False)
        if normalise:
            size = norm_size or (1, 1)
            self.norm_weight = nn.Parameter(torch.ones(channels // groups, *size))
            self.norm_bias = nn.Parameter(torch.zeros(channels // groups, *size))

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        """query (B, Q, C, H, W), memory (B, T, C, H, W) → (B, Q, C, H, W), without residual."""
        batch, queries, channels, height, width = query.shape
        frames, depth, area = memory.shape[1], channels // self.groups, height * width
        q = _per_frame(self.query, query).reshape(batch, queries, self.groups, depth, area)
        k = _per_frame(self.key, memory).reshape(batch, frames, self.groups, depth, area)
        v = _per_frame(self.value, memory).reshape(batch, frames, self.groups, depth, area)
        if self.normalise:
            q = self._norm(q, height, width)
        mixed, sharpest = [], []
        for group, dilation in enumerate(self.dilations):
            # int(): while a graph is traced for export, sizes are tensors, and the table must become a constant.
            places = window_indices(int(height), int(width), self.radius, dilation).to(query.device)
            # (B, HW, Q, d) and, for each pixel, all places of all frames: (B, HW, places * T, d).
            asked = q[:, :, group].permute(0, 3, 1, 2)
            affinity = asked @ _windows(k[:, :, group], places).transpose(2, 3) / math.sqrt(depth)
            softmaxed = affinity.softmax(-1) if self.soft_attention or self.aggregation == "softmax" else affinity
            weight = affinity if self.aggregation == "raw" else softmaxed
            mixed.append((weight @ _windows(v[:, :, group], places)).permute(0, 2, 3, 1))
            sharpest.append(softmaxed.amax(-1).transpose(1, 2))
        answer = torch.cat(mixed, 2).reshape(batch * queries, channels, height, width)
        answer = self.output(answer).reshape(batch, queries, channels, height, width)
        if self.soft_attention:
            focus = torch.stack(sharpest).amax(0).reshape(batch, queries, 1, height, width)
            answer = answer * focus
        return answer

    def _norm(self, q: Tensor, height: int, width: int) -> Tensor:
        mean = q.mean((3, 4), keepdim=True)
        centred = q - mean
        scaled = centred * torch.rsqrt(centred.square().mean((3, 4), keepdim=True) + 1e-5)
        weight, bias = self.norm_weight, self.norm_bias
        if weight.shape[1:] not in ((1, 1), (height, width)):
            both = torch.stack([weight, bias])
            both = nn.functional.interpolate(both, size=(height, width), mode="bilinear", align_corners=False)
            weight, bias = both[0], both[1]
        return scaled * weight.flatten(1) + bias.flatten(1)


def _per_frame(layer: nn.Module, frames: Tensor) -> Tensor:
    return layer(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])


def _windows(frames: Tensor, places: Tensor) -> Tensor:
    """frames (B, T, d, HW) → (B, HW, P * T, d), zero outside the image; `places` is (HW, P)."""
    batch, count, depth, area = frames.shape
    rows = nn.functional.pad(frames.permute(0, 3, 1, 2).reshape(batch, area, count * depth), (0, 0, 0, 1))
    gathered = rows.index_select(1, places.flatten())
    return gathered.reshape(batch, area, places.shape[1] * count, depth)
