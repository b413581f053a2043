"""The segmenter that ships: PNS+ (Ji et al., "Video Polyp Segmentation", 2022) made causal, light and streaming.

Ours differs from the paper in the encoder (EfficientNet-Lite instead of Res2Net-50), in the decoder (a small feature
pyramid with a head at stride 4 instead of stride 8) and in how the normalised self-attention enters: its result is
added to the stride-16 features of the frame, so that with an empty state the network is a plain image segmenter.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polypscope.models.depthwise import DepthwiseConv2d
from polypscope.models.efficientnet_lite import EfficientNetLite


def _resize(x: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    return nn.functional.interpolate(x, size=tuple(size), mode="bilinear", align_corners=False)


def _pointwise(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))


class Separable(nn.Module):
    """Depth-wise kxk then 1x1, each with batch norm; the residual keeps the gradient path short."""

    def __init__(self, channels: int, kernel: int = 3) -> None:
        super().__init__()
        self.depthwise = nn.Sequential(DepthwiseConv2d(channels, kernel), nn.BatchNorm2d(channels))
        self.pointwise = _pointwise(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.pointwise(torch.relu(self.depthwise(x))))


class Context(nn.Module):
    """Stride-32 features seen at three extents: local, the whole image, and in between."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.local = _pointwise(inputs, outputs)
        self.whole = nn.Sequential(nn.Conv2d(inputs, outputs, 1), nn.ReLU())
        self.mix = nn.Sequential(Separable(outputs, 5), Separable(outputs, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(torch.relu(self.local(x) + self.whole(x.mean((2, 3), keepdim=True))))


class Merge(nn.Module):
    """Coarser features upsampled onto finer ones."""

    def __init__(self, coarse: int, fine: int, outputs: int, kernel: int = 3) -> None:
        super().__init__()
        self.coarse = _pointwise(coarse, outputs)
        self.fine = _pointwise(fine, outputs)
        self.mix = nn.Sequential(Separable(outputs, kernel), Separable(outputs, kernel))

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        return self.mix(torch.relu(self.fine(fine) + _resize(self.coarse(coarse), fine.shape[-2:])))


class StreamSegmenter(nn.Module):
    """One RGB frame (B, 3, H, W), normalised, to polyp logits (B, 1, H, W); sides are multiples of 32.

    Parameters
    ----------
    encoder : variant of EfficientNet-Lite.
    """

    def __init__(self, encoder: str = "lite1") -> None:
        super().__init__()
        self.encoder = EfficientNetLite(encoder)
        _, c4, c8, c16, c32 = self.encoder.channels
        self.context = Context(c32, 96)
        self.merge16 = Merge(96, c16, 96, 5)
        self.merge8 = Merge(96, c8, 48)
        self.merge4 = Merge(48, c4, 32)
        self.head16 = nn.Conv2d(96, 1, 1)
        self.head8 = nn.Conv2d(48, 1, 1)
        self.head4 = nn.Conv2d(32, 1, 1)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features of one frame: stride 4, stride 8, and the stride-16 map that the memory works on."""
        _, f4, f8, f16, f32 = self.encoder(x)
        return f4, f8, self.merge16(self.context(f32), f16)

    def decode(self, f4: Tensor, f8: Tensor, high: Tensor) -> list[Tensor]:
        """Logits at strides 4, 8 and 16, finest first."""
        m8 = self.merge8(high, f8)
        m4 = self.merge4(m8, f4)
        return [self.head4(m4), self.head8(m8), self.head16(high)]

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        """Logits (B, 1, H, W); in training, the maps at strides 4, 8 and 16 for deep supervision."""
        logits = self.decode(*self.encode(x))
        return logits if self.training else _resize(logits[0], x.shape[-2:])
