"""Metric depth from the segmenter's own features: a small decoder that also sees the lens.

The head gets the frozen features of the segmenter at strides 4, 8 and 16, a thumbnail of the picture (how bright a
wall is says how near the light is, and a segmenter learns to ignore that), how finely grained the mucosa looks (vessels
have a size in mm, so this tells the scale where exposure hides it), and the viewing ray of every coarse pixel. Most of
its layers work at stride 16, where they are cheap, and two of them let every place see the whole picture.
The rays say what a focal length says in the canonical-camera methods (Yin et al., Metric3D, 2023), for fisheye lenses
too. It predicts the logarithm of the distance along the ray in mm and the logarithm of its relative uncertainty.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from polypscope.models.efficientnet_lite import MEAN, STD
from polypscope.models.pns_plus_stream import Merge, Separable, _pointwise, _resize

TYPICAL_MM = 30.0


class Survey(nn.Module):
    """Every place looks at the whole picture, reduced to half the size: scale is told by all of it together."""

    def __init__(self, channels: int, heads: int = 4) -> None:
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
        query = self.query(seen).reshape(-1, self.heads, each, height * width)
        small = nn.functional.avg_pool2d(seen, 2)
        keys = self.keys(small).reshape(-1, self.heads, each, (height // 2) * (width // 2))
        values = self.values(small).reshape(-1, self.heads, each, (height // 2) * (width // 2))
        share = (query.transpose(-1, -2) @ keys * each**-0.5).softmax(-1)
        told = (values @ share.transpose(-1, -2)).reshape(-1, channels, height, width)
        return y + self.out(told)


class DepthHead(nn.Module):
    """Features of one frame and its rays to log distance and log relative sigma, (B, 2, H/4, W/4).

    Parameters
    ----------
    channels : channels of the features at strides 4, 8 and 16.
    """

    def __init__(self, channels: tuple[int, int, int] = (24, 40, 96)) -> None:
        super().__init__()
        self.channels = channels
        c4, c8, c16 = channels
        self.glance = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
        self.enter = _pointwise(c16 + 16 + 4, 96)
        self.edges = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.AvgPool2d(8))
        self.grains = nn.Sequential(nn.Conv2d(c4, 32, 1), nn.ReLU(), nn.AvgPool2d(4))
        self.grain = nn.Conv2d(48, 96, 1)
        self.whole = nn.Sequential(nn.Conv2d(96, 96, 1), nn.ReLU())
        self.mix = nn.Sequential(*(Separable(96, 5) for _ in range(12)))
        self.place = nn.Conv2d(4, 96, 1)
        self.surveys = nn.ModuleList(Survey(96) for _ in range(2))
        self.merge8 = Merge(96, c8 + 16, 48)
        self.mix8 = nn.Sequential(*(Separable(48, 5) for _ in range(3)))
        self.merge4 = Merge(48, c4 + 3, 32)
        self.out = nn.Conv2d(32, 2, 1)
        # What was added later starts as nothing, so that a shallower head can grow into this one.
        grown = (*self.mix[3:], *self.mix8)
        told = (self.grain, *(survey.out for survey in self.surveys))
        for layer in (*told, *(block.pointwise[1] for block in grown)):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.out.bias.copy_(torch.tensor([math.log(TYPICAL_MM), math.log(0.3)]))

    def forward(self, f4: Tensor, f8: Tensor, f16: Tensor, x: Tensor, rays: Tensor) -> Tensor:
        """x (B, 3, H, W) normalised; rays (B, 3, h, w) unit directions of any coarse map size."""
        small = nn.functional.avg_pool2d(x, 4)
        glance = self.glance(small)
        rays = _resize(rays, f16.shape[-2:])
        # The angle from the axis is given outright: small heads are slow to find an arc cosine.
        lens = torch.cat([rays, torch.acos(rays[:, 2:].clamp(-0.999, 0.999))], 1)
        grain = self.grain(torch.cat([self.edges(x), self.grains(f4)], 1))
        y = torch.relu(self.enter(torch.cat([f16, nn.functional.avg_pool2d(glance, 2), lens], 1)) + grain)
        y = self.mix[:6](y + self.whole(y.mean((2, 3), keepdim=True)))
        place = self.place(lens)
        for first, survey in zip((6, 9), self.surveys, strict=True):
            y = self.mix[first : first + 3](survey(y, place))
        y = self.mix8(self.merge8(y, torch.cat([f8, glance], 1)))
        y = self.merge4(y, torch.cat([f4, small], 1))
        return self.out(y)


class DepthGraph(nn.Module):
    """The head as it is exported: pixels, the segmenter's features and rays in, distance and sigma in mm out."""

    def __init__(self, head: DepthHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, image: Tensor, f4: Tensor, f8: Tensor, f16: Tensor, rays: Tensor) -> tuple[Tensor, Tensor]:
        """image (B, H, W, 3) uint8, rays (B, h, w, 3) → ray_mm and sigma_mm (B, 1, H/4, W/4)."""
        x = (image.permute(0, 3, 1, 2).float() - MEAN) / STD
        out = self.head(f4, f8, f16, x, rays.permute(0, 3, 1, 2))
        ray_mm = out[:, :1].clamp(-1.0, 7.0).exp()
        # The scale of a Laplace distribution, as a standard deviation.
        return ray_mm, ray_mm * out[:, 1:].clamp(-5.0, 1.0).exp() * math.sqrt(2)
