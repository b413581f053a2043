"""PraNet (Fan et al. 2020): parallel partial decoder and reverse attention on a Res2Net-50, the field's image baseline.

Parameter names are those of the authors' checkpoints (their `resnet.` is our `encoder.`). Ours differs in that maps
are resized to each other's size instead of by fixed factors, so that any input size whose sides are at least 64 works.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polypscope.models.res2net import Res2Net50

AUTHORS_NAMES = (("encoder.", "resnet."),)


class ConvNorm(nn.Module):
    """Convolution without bias and batch norm, no activation."""

    def __init__(self, inputs: int, outputs: int, kernel: int | tuple[int, int], dilation: int = 1) -> None:
        super().__init__()
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (sides[0] // 2 * dilation, sides[1] // 2 * dilation)
        self.conv = nn.Conv2d(inputs, outputs, sides, padding=padding, dilation=dilation, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x))


class ReceptiveFields(nn.Module):
    """Four branches of growing extent, as in RFB."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.branch0 = nn.Sequential(ConvNorm(inputs, outputs, 1))
        for index, extent in enumerate((3, 5, 7), start=1):
            branch = nn.Sequential(
                ConvNorm(inputs, outputs, 1),
                ConvNorm(outputs, outputs, (1, extent)),
                ConvNorm(outputs, outputs, (extent, 1)),
                ConvNorm(outputs, outputs, 3, extent),
            )
            self.add_module(f"branch{index}", branch)
        self.conv_cat = ConvNorm(4 * outputs, outputs, 3)
        self.conv_res = ConvNorm(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        branches = [self.get_submodule(f"branch{index}")(x) for index in range(4)]
        return torch.relu(self.conv_cat(torch.cat(branches, 1)) + self.conv_res(x))


def _aligned(x: Tensor, like: Tensor) -> Tensor:
    return nn.functional.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=True)


def _resized(x: Tensor, like: Tensor) -> Tensor:
    return nn.functional.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)


class PartialDecoder(nn.Module):
    """Features at strides 32, 16 and 8, multiplied and concatenated, to a coarse map at stride 8."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        for index in range(1, 5):
            self.add_module(f"conv_upsample{index}", ConvNorm(channels, channels, 3))
        self.conv_upsample5 = ConvNorm(2 * channels, 2 * channels, 3)
        self.conv_concat2 = ConvNorm(2 * channels, 2 * channels, 3)
        self.conv_concat3 = ConvNorm(3 * channels, 3 * channels, 3)
        self.conv4 = ConvNorm(3 * channels, 3 * channels, 3)
        self.conv5 = nn.Conv2d(3 * channels, 1, 1)

    def forward(self, x1: Tensor, x2: Tensor, x3: Tensor) -> Tensor:
        up2 = _aligned(x1, x2)
        y2 = self.conv_upsample1(up2) * x2
        y3 = self.conv_upsample2(_aligned(up2, x3)) * self.conv_upsample3(_aligned(x2, x3)) * x3
        y2 = self.conv_concat2(torch.cat([y2, self.conv_upsample4(up2)], 1))
        y3 = self.conv_concat3(torch.cat([y3, self.conv_upsample5(_aligned(y2, x3))], 1))
        return self.conv5(self.conv4(y3))


class PraNet(nn.Module):
    """Image (B, 3, H, W), ImageNet-normalised, to logits (B, 1, H, W); in training four maps, finest first."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.encoder = Res2Net50()
        self.rfb2_1 = ReceptiveFields(512, channels)
        self.rfb3_1 = ReceptiveFields(1024, channels)
        self.rfb4_1 = ReceptiveFields(2048, channels)
        self.agg1 = PartialDecoder(channels)
        for level, inputs, width, kernel, middle in ((4, 2048, 256, 5, 3), (3, 1024, 64, 3, 2), (2, 512, 64, 3, 2)):
            self.add_module(f"ra{level}_conv1", ConvNorm(inputs, width, 1))
            for index in range(2, 2 + middle):
                self.add_module(f"ra{level}_conv{index}", ConvNorm(width, width, kernel))
            self.add_module(f"ra{level}_conv{2 + middle}", ConvNorm(width, 1, 1 if level == 4 else 3))

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        _, f2, f3, f4 = self.encoder(x)
        coarse = self.agg1(self.rfb4_1(f4), self.rfb3_1(f3), self.rfb2_1(f2))
        maps = [coarse]
        guess = coarse
        for level, features, convolutions in ((4, f4, 5), (3, f3, 4), (2, f2, 4)):
            before = _resized(guess, features)
            y = self.get_submodule(f"ra{level}_conv1")(features * (1 - before.sigmoid()))
            for index in range(2, convolutions):
                y = torch.relu(self.get_submodule(f"ra{level}_conv{index}")(y))
            guess = self.get_submodule(f"ra{level}_conv{convolutions}")(y) + before
            maps.append(guess)
        return maps[::-1] if self.training else _resized(guess, x)
