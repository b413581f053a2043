"""What networks on patches need to be slid over a whole picture: no padding inside them, and black around the picture.

A convolution that pads sees zeros beyond the border of a patch, and the picture where the patch was not cut out. These
do not pad, so that a network says the same of a window either way.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

BLACK = -127 / 128  # as networks that take (rgb - 127) / 128 see it


def convolution(inputs: int, outputs: int, side: int, stride: int = 1) -> nn.Sequential:
    """Convolution without padding, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, side, stride, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def surrounded(x: Tensor, window_px: int, step_px: int) -> Tensor:
    """The picture (B, C, H, W) with as much black around it as gives H / step × W / step windows.

    Each is then centred on its cell of the picture, so that a map of their answers lies on it without a shift. Black is
    what an endoscope shows beyond its field of view.
    """
    return nn.functional.pad(x, [(window_px - step_px) // 2] * 4, value=BLACK)


def resized(x: Tensor, size: Sequence[int]) -> Tensor:
    """(B, C, h, w) to (B, C, *size), bilinear; untouched if it has that size."""
    if [int(side) for side in x.shape[-2:]] == list(size):  # an exporter's sides are no plain numbers
        return x
    return nn.functional.interpolate(x, size=list(size), mode="bilinear", align_corners=False)
