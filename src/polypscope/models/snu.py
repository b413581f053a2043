"""SNU's entry in the MICCAI 2015 challenge (Bernal et al. 2017): GoogLeNet says whether, hiding parts says where.

A classifier sees the picture at 224×224 and says whether there is a polyp. To find it, each cell of an 8×8 grid is
covered in black, one at a time, and the picture is judged again: the cell without which the score drops most holds what
the classifier had seen.

Our map joins both steps: a cell's value is the probability that there is a polyp, times its drop as a share of the
largest drop. So the map exceeds a threshold where the classifier does, in the cell that the entry would name and those
that matter nearly as much. Drops are those of the log odds, because the probability of an evident polyp hardly moves.

Where ours differs: GoogLeNet (Szegedy et al. 2015) starts without ImageNet, since no weights of it are at hand, and so
has batch norms; its auxiliary classifiers pool the whole picture and it has no dropout, so that a run can be resumed to
the bit. It is trained with `loss = "presence"`, and needs pictures without polyp, real or cut out (`[augment] empty`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polypscope.models.sliding import BLACK, resized

GRID = 8
LEAST_DROP = 0.1  # of the log odds; if no cell matters that much, none is named with confidence
# 1×1; reduced and 3×3; reduced and 5×5; pooled. After the rows with a pool (None), the picture has half its size.
INCEPTIONS: tuple[tuple[int, int, int, int, int, int] | None, ...] = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)
AUXILIARY = (3, 6)  # rows that an auxiliary classifier reads


class Inception(nn.Module):
    """Four ways through one level, concatenated."""

    def __init__(self, inputs: int, one: int, to3: int, three: int, to5: int, five: int, pooled: int) -> None:
        super().__init__()
        self.outputs = one + three + five + pooled
        self.one = _convolution(inputs, one, 1)
        self.three = nn.Sequential(_convolution(inputs, to3, 1), _convolution(to3, three, 3))
        self.five = nn.Sequential(_convolution(inputs, to5, 1), _convolution(to5, five, 5))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), _convolution(inputs, pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], 1)


class GoogLeNet(nn.Module):
    """Image (B, 3, S, S) to the log odds of a polyp (B, 1, 1, 1); in training also of two auxiliary classifiers."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        narrow, wide, middle = (_scaled(channels, width) for channels in (64, 192, 128))
        self.stem = nn.Sequential(
            _convolution(3, narrow, 7, stride=2),
            nn.MaxPool2d(3, 2, 1),
            _convolution(narrow, narrow, 1),
            _convolution(narrow, wide, 3),
            nn.MaxPool2d(3, 2, 1),
        )
        self.levels = nn.ModuleList()
        self.auxiliary = nn.ModuleList()
        channels = wide
        for index, row in enumerate(INCEPTIONS):
            if row is None:
                self.levels.append(nn.MaxPool2d(3, 2, 1))
                continue
            level = Inception(channels, *(_scaled(count, width) for count in row))
            channels = level.outputs
            self.levels.append(level)
            if index in AUXILIARY:
                self.auxiliary.append(nn.Sequential(nn.Conv2d(channels, middle, 1), nn.ReLU(), nn.Conv2d(middle, 1, 1)))
        self.output = nn.Conv2d(channels, 1, 1)

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        x = self.stem(x)
        aside: list[Tensor] = []
        for index, level in enumerate(self.levels):
            x = level(x)
            if index in AUXILIARY:
                aside.append(x)
        told = self.output(_mean(x))
        if not self.training:
            return told
        return [told, *(judge(_mean(seen)) for judge, seen in zip(self.auxiliary, aside, strict=True))]


class SNU(nn.Module):
    """Image (B, 3, H, W) to logits (B, 1, H, W); in training GoogLeNet's answers for whole pictures, (B, 1, 1, 1).

    Parameters
    ----------
    width : channels, relative to GoogLeNet's.
    size : side in pixels of what the classifier sees; the entry's is 224.
    """

    covers: Tensor

    def __init__(self, width: float = 1.0, size: int = 224) -> None:
        super().__init__()
        self.size = size
        self.classifier: nn.Module = GoogLeNet(width)
        cell = torch.arange(size) * GRID // size
        number = cell[:, None] * GRID + cell
        covers = (number == torch.arange(GRID * GRID)[:, None, None]).float()[:, None]
        self.register_buffer("covers", covers, persistent=False)  # (64, 1, S, S), 1 where a cell is covered

    def drops(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log odds (B, 1, 1, 1) of pictures (B, 3, S, S), and how much covering each cell lowers them (B, 1, 8, 8)."""
        whole = self.classifier(x)
        covered = x[:, None] * (1 - self.covers) + BLACK * self.covers
        without = self.classifier(covered.reshape(-1, 3, self.size, self.size)).reshape(-1, 1, GRID, GRID)
        return whole, whole - without

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        small = resized(x, [self.size, self.size])
        if self.training:
            return self.classifier(small)
        whole, drops = self.drops(small)
        largest = drops.amax((2, 3), keepdim=True).clamp(min=LEAST_DROP)
        probability = whole.sigmoid() * drops.relu() / largest
        # Bounded, since logits cannot say "certainly not"; in whole cells, since between them nothing is known.
        return nn.functional.interpolate(probability.clamp(0.01, 0.9999).logit(), size=x.shape[-2:], mode="nearest")


def _convolution(inputs: int, outputs: int, side: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def _mean(x: Tensor) -> Tensor:
    return x.mean((2, 3), keepdim=True)


def _scaled(channels: int, width: float) -> int:
    return max(2, round(channels * width))
