"""Res2Net-50 v1b 26w4s (Gao et al. 2019): the encoder of PNS+ and PraNet, named as in the public weights.

The public ImageNet file (`res2net50_v1b_26w_4s`) loads by name; its `fc` has no place here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH, SCALE = 26, 4


class Bottle2neck(nn.Module):
    """Bottleneck whose 3x3 is split into groups that feed one another."""

    def __init__(self, inputs: int, planes: int, stride: int, first: bool) -> None:
        super().__init__()
        width = planes * WIDTH // 64
        self.first = first
        self.conv1 = nn.Conv2d(inputs, width * SCALE, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width * SCALE)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, stride, 1, bias=False) for _ in range(SCALE - 1))
        self.bns = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(SCALE - 1))
        self.pool = nn.AvgPool2d(3, stride, 1) if first else nn.Identity()
        self.conv3 = nn.Conv2d(width * SCALE, planes * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * 4)
        self.downsample = (
            nn.Sequential(
                nn.AvgPool2d(stride, stride, ceil_mode=True, count_include_pad=False),
                nn.Conv2d(inputs, planes * 4, 1, bias=False),
                nn.BatchNorm2d(planes * 4),
            )
            if first
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.relu(self.bn1(self.conv1(x))).chunk(SCALE, 1)
        outputs: list[Tensor] = []
        for index, (conv, norm) in enumerate(zip(self.convs, self.bns, strict=True)):
            part = parts[index] if index == 0 or self.first else parts[index] + outputs[-1]
            outputs.append(torch.relu(norm(conv(part))))
        outputs.append(self.pool(parts[-1]))
        return torch.relu(self.bn3(self.conv3(torch.cat(outputs, 1))) + self.downsample(x))


class Res2Net50(nn.Module):
    """Image (B, 3, H, W) to features at strides 4, 8, 16 (and 32 with `stages=4`): 256, 512, 1024, 2048 channels."""

    def __init__(self, stages: int = 4) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, 1, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 1, 1, bias=False),
        )
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.stages = stages
        inputs = 64
        for stage, repeats in enumerate((3, 4, 6, 3)[:stages], start=1):
            planes = 32 * 2**stage
            blocks = [Bottle2neck(inputs, planes, 1 if stage == 1 else 2, True)]
            blocks += [Bottle2neck(planes * 4, planes, 1, False) for _ in range(repeats - 1)]
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
            inputs = planes * 4

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        features = []
        for stage in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
            features.append(x)
        return features
