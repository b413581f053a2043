"""Depth-wise convolution whose backward pass is fast in bfloat16 on a CPU.

PyTorch hands the backward pass of a bfloat16 depth-wise convolution to slow reference kernels when the stride is 2 or
the kernel is 5x5: for EfficientNet-Lite that is 70 % of a training step. Here the gradient of the input is computed as
a forward convolution of the (zero-stuffed) output gradient with the flipped kernel, and that of a 5x5 kernel as those
of its four 3x3 corners, for which there is a fast one. The values are those of autograd up to rounding;
`tests/models/test_depthwise.py` holds them to it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class _DepthwiseFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return nn.functional.conv2d(x, weight, None, stride, weight.shape[-1] // 2, 1, weight.shape[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        stride, kernel, channels = ctx.stride, weight.shape[-1], weight.shape[0]
        padding = kernel // 2
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            spread = grad
            if stride > 1:
                spread = torch.zeros_like(x)
                spread[:, :, ::stride, ::stride] = grad
            grad_x = nn.functional.conv2d(spread, weight.flip(2, 3), None, 1, padding, 1, channels)
        if ctx.needs_input_grad[1]:
            if kernel == 5:
                grad_weight = _by_corners(grad, x, weight, stride)
            else:
                grad_weight = _kernel_gradient(grad, x, weight, stride, padding)
        return grad_x, grad_weight, None


def _kernel_gradient(grad: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    return torch.ops.aten.convolution_backward(
        grad, x, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], len(weight), [False, True, False]
    )[1]


def _by_corners(grad: Tensor, x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Gradient of a 5x5 kernel: each of its 3x3 corners is a kernel over a part of the padded input."""
    height, width = (size + 2 for size in x.shape[-2:])
    padded = nn.functional.pad(x, (2, 2, 2, 2))
    gradient = torch.empty_like(weight)
    for top, left in ((0, 0), (0, 2), (2, 0), (2, 2)):
        corner = slice(None), slice(None), slice(top, top + 3), slice(left, left + 3)
        part = padded[:, :, top : top + height, left : left + width].contiguous(memory_format=torch.channels_last)
        gradient[corner] = _kernel_gradient(grad, part, weight[corner].contiguous(), stride, 0)
    return gradient


class DepthwiseConv2d(nn.Conv2d):
    """`nn.Conv2d(channels, channels, kernel, stride, groups=channels, bias=False)` with half padding.

    It takes the fast path only where that is faster: training under CPU bfloat16 autocast.
    """

    def __init__(self, channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__(channels, channels, kernel, stride, kernel // 2, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()):
            return super().forward(x)
        dtype = torch.get_autocast_dtype("cpu")
        weight = self.weight.to(dtype)
        with torch.autocast("cpu", enabled=False):
            return _DepthwiseFunction.apply(x.to(dtype), weight, self.stride[0])
