"""Metric depth as a branch of the segmenter's encoder, with a look at the lens.

The branch leaves the encoder at stride 8 and has upper stages of its own, because what tells millimetres (how thick
folds are and how far apart, how large vessels and grain look, how the light falls off) is what a segmenter's upper
stages learn to ignore. It also gets a thumbnail of the picture, since brightness says how near the lamps are, a second
look at the fine features of stride 4, and the viewing ray of every coarse pixel. The rays say what a focal length says
in the canonical-camera methods (Yin et al., Metric3D, 2023), for fisheye lenses too. It predicts the logarithm of the
distance along the ray in mm and the logarithm of its relative uncertainty.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from polypscope.models.depthwise import DepthwiseConv2d
from polypscope.models.efficientnet_lite import FEATURE_STAGES, MEAN, STAGES, STD, EfficientNetLite, MBConv
from polypscope.models.pns_plus_stream import Merge, _pointwise, _resize
from polypscope.models.weights import load_checkpoint
from polypscope.records.errors import ModelError, UsageError

TYPICAL_MM = 30.0
WIDTHS = (80, 112, 192)  # channels of the branch's own stages, at strides 16, 16 and 32, as in EfficientNet-Lite0 and 1
REPEATS = (3, 3, 4)


def _stage(number: int, inputs: int, outputs: int) -> nn.Sequential:
    """A stage like that of EfficientNet-Lite."""
    _, kernel, stride, expansion, _, _ = STAGES[number]
    widths = [inputs] + [outputs] * REPEATS[number - 3]
    blocks = enumerate(pairwise(widths))
    return nn.Sequential(*(MBConv(a, b, kernel, 1 if n else stride, expansion) for n, (a, b) in blocks))


class Survey(nn.Module):
    """Every place looks at the whole picture: scale is told by all of it together."""

    def __init__(self, channels: int, heads: int = 6) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.BatchNorm2d(channels)
        self.query = nn.Conv2d(channels, channels, 1)
        self.keys = nn.Conv2d(channels, channels, 1)
        self.values = nn.Conv2d(channels, channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, y: Tensor, place: Tensor) -> Tensor:
        """y and place, which says where each pixel looks, (B, C, h, w) → (B, C, h, w)."""
        channels, height, width = (int(size) for size in y.shape[1:])
        each = channels // self.heads
        seen = self.norm(y) + place
        query, keys, values = (
            layer(seen).reshape(-1, self.heads, each, height * width) for layer in (self.query, self.keys, self.values)
        )
        share = (query.transpose(-1, -2) @ keys * each**-0.5).softmax(-1)
        told = (values @ share.transpose(-1, -2)).reshape(-1, channels, height, width)
        return y + self.out(told)


class DepthHead(nn.Module):
    """Features of one frame and its rays to log distance and log relative sigma, (B, 2, H/4, W/4).

    Parameters
    ----------
    channels : channels of the segmenter's features at strides 4 and 8.
    """

    def __init__(self, channels: tuple[int, int] = (24, 40)) -> None:
        super().__init__()
        self.channels = channels
        c4, c8 = channels
        first, second, third = WIDTHS
        self.glance = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, c8, 3, 2, 1))
        self.grain = nn.Sequential(
            _pointwise(c4, 72),
            nn.ReLU6(),
            DepthwiseConv2d(72, 5, 2),
            nn.BatchNorm2d(72),
            nn.ReLU6(),
            _pointwise(72, c8),
        )
        self.stage3 = _stage(3, c8, first)
        self.stage4 = _stage(4, first, second)
        self.stage5 = _stage(5, second, third)
        self.lens = nn.Conv2d(4, first, 1)
        self.place = nn.Conv2d(4, third, 1)
        self.surveys = nn.ModuleList(Survey(third) for _ in range(2))
        self.merge16 = Merge(third, second, 96, 5)
        self.merge8 = Merge(96, c8, 48)
        self.merge4 = Merge(48, c4 + 3, 32)
        self.out = nn.Conv2d(32, 2, 1)
        # What is added to the encoder's own stages starts as nothing, so that these start from what they know.
        for layer in (self.glance[2], self.grain[-1][1], self.lens, *(survey.out for survey in self.surveys)):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.out.bias.copy_(torch.tensor([math.log(TYPICAL_MM), math.log(0.3)]))

    @torch.no_grad()
    def take_after(self, encoder: EfficientNetLite) -> None:
        """Start the branch's own stages with the weights of the encoder that it branches from."""
        if encoder.variant not in ("lite0", "lite1"):
            raise UsageError(
                f"Depth head: expected an encoder with the widths of EfficientNet-Lite0 and 1, found {encoder.variant}."
            )
        blocks = iter(encoder._blocks[encoder.taps[FEATURE_STAGES.index(2)] + 1 :])
        block = next(blocks)
        for stage in (self.stage3, self.stage4, self.stage5):
            for mine in stage:
                mine.load_state_dict(block.state_dict())
                block = next(blocks)
            # A larger encoder repeats its stages more often: the further blocks are left out.
            while block.residual:
                block = next(blocks)

    def forward(self, f4: Tensor, f8: Tensor, x: Tensor, rays: Tensor) -> Tensor:
        """x (B, 3, H, W) normalised; rays (B, 3, h, w) unit directions of any coarse map size."""
        small = nn.functional.avg_pool2d(x, 4)
        y8 = f8 + self.glance(small) + self.grain(f4)
        y = self.stage3(y8)
        rays = _resize(rays, y.shape[-2:])
        # The angle from the axis is given outright: small networks are slow to find an arc cosine.
        lens = torch.cat([rays, torch.acos(rays[:, 2:].clamp(-0.999, 0.999))], 1)
        y = self.stage4(y + self.lens(lens))
        top = self.stage5(y)
        place = self.place(_resize(lens, top.shape[-2:]))
        for survey in self.surveys:
            top = survey(top, place)
        y = self.merge8(self.merge16(top, y), y8)
        return self.out(self.merge4(y, torch.cat([f4, small], 1)))


def load_head(checkpoint: Path) -> DepthHead:
    """The depth head in a `depth.pt` that `polypscope train` wrote."""
    what = "`depth.pt` of `polypscope train`"
    content = load_checkpoint(checkpoint, what)
    try:
        head = DepthHead(tuple(content["channels"]))
        head.load_state_dict(content["depth"])
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise ModelError(f"{checkpoint}: expected a {what}, found a checkpoint of another network.") from None
    return head


class DepthGraph(nn.Module):
    """The head as it is exported: pixels, the segmenter's features and rays in, distance and sigma in mm out."""

    def __init__(self, head: DepthHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, image: Tensor, f4: Tensor, f8: Tensor, rays: Tensor) -> tuple[Tensor, Tensor]:
        """image (B, H, W, 3) uint8, rays (B, h, w, 3) → ray_mm and sigma_mm (B, 1, H/4, W/4)."""
        x = (image.permute(0, 3, 1, 2).float() - MEAN) / STD
        out = self.head(f4, f8, x, rays.permute(0, 3, 1, 2))
        ray_mm = out[:, :1].clamp(-1.0, 7.0).exp()
        # The scale of a Laplace distribution, as a standard deviation.
        return ray_mm, ray_mm * out[:, 1:].clamp(-5.0, 1.0).exp() * math.sqrt(2)
