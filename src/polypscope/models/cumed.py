"""CUMED's entry in the MICCAI 2015 challenge (Bernal et al. 2017), a network after Chen et al. 2016.

A path of convolutions and max-pools goes down; from its three deepest levels convolutions and upsampling go up to the
picture's size. Each of these branches has an auxiliary classifier, which is trained on the mask itself; what the
branches found is summed and classified once more, and that fused map is the result.

Where ours differs: batch norms, so that it also learns from scratch; bilinear upsampling; one logit in the place of two
classes; and features are transferred from ImageNet with one of our own encoders (`encoder = "lite0"`), since no weights
of VGG-16 are at hand. How much the auxiliary classifiers count is up to the trainer and does not fade during training.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polypscope.models.efficientnet_lite import EfficientNetLite

BRANCHES = 3


class DownPath(nn.Module):
    """VGG-16's convolutions and max-pools: image (B, 3, H, W) to features at strides 1, 2, 4, 8 and 16."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.channels = [width * factor for factor in (1, 2, 4, 8, 8)]
        before = [3, *self.channels[:-1]]
        self.stages = nn.ModuleList(
            nn.Sequential(*(_convolution(inputs if index == 0 else outputs, outputs) for index in range(count)))
            for inputs, outputs, count in zip(before, self.channels, (2, 2, 3, 3, 3), strict=True)
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        features: list[Tensor] = []
        for index, stage in enumerate(self.stages):
            x = stage(x if index == 0 else nn.functional.max_pool2d(x, 2))
            features.append(x)
        return features


class Branch(nn.Module):
    """One level of the down path brought up to the picture's size: (B, C, h, w) to (B, F, H, W)."""

    def __init__(self, inputs: int, features: int) -> None:
        super().__init__()
        self.reduce = _convolution(inputs, features)
        self.refine = _convolution(features, features)

    def forward(self, level: Tensor, like: Tensor) -> Tensor:
        small = self.reduce(level)
        return self.refine(nn.functional.interpolate(small, size=like.shape[-2:], mode="bilinear", align_corners=False))


class CUMED(nn.Module):
    """Image (B, 3, H, W) to logits (B, 1, H, W); in training the fused map, then those of the auxiliary classifiers.

    Parameters
    ----------
    encoder : "vgg", the down path as described, or "lite0", "lite1", "lite2", which start from ImageNet when trained.
    width : channels of VGG's first level; the published one has 64.
    features : channels of each branch.
    """

    def __init__(self, encoder: str = "vgg", width: int = 64, features: int = 16) -> None:
        super().__init__()
        self.encoder = DownPath(width) if encoder == "vgg" else EfficientNetLite(encoder)
        self.branches = nn.ModuleList(Branch(channels, features) for channels in self.encoder.channels[-BRANCHES:])
        self.auxiliary = nn.ModuleList(nn.Conv2d(features, 1, 1) for _ in self.branches)
        self.classifier = nn.Conv2d(features, 1, 1)

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        levels = self.encoder(x)[-BRANCHES:]
        found = [branch(level, x) for branch, level in zip(self.branches, levels, strict=True)]
        fused = self.classifier(torch.stack(found).sum(0))
        if not self.training:
            return fused
        return [fused, *(classify(features) for classify, features in zip(self.auxiliary, found, strict=True))]


def _convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
