"""The fast backward pass of the depth-wise convolution equals autograd's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="models need the train extra")

from polypscope.models.depthwise import DepthwiseConv2d, _DepthwiseFunction  # noqa: E402


@pytest.mark.parametrize(
    ("kernel", "stride", "size"), [(3, 1, 9), (3, 2, 10), (3, 2, 9), (5, 1, 8), (5, 2, 12), (5, 2, 11)]
)
def test_gradients(kernel: int, stride: int, size: int) -> None:
    torch.manual_seed(0)
    layer = DepthwiseConv2d(4, kernel, stride).double()
    x = torch.randn(2, 4, size, size, dtype=torch.float64, requires_grad=True)
    plain, fast = layer(x), _DepthwiseFunction.apply(x, layer.weight, stride)
    assert torch.equal(plain, fast)
    direction = torch.randn_like(plain)
    for ours, theirs in zip(
        torch.autograd.grad((fast * direction).sum(), [x, layer.weight]),
        torch.autograd.grad((plain * direction).sum(), [x, layer.weight]),
        strict=True,
    ):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_autocast_takes_the_fast_path() -> None:
    layer = DepthwiseConv2d(4, 3, 2)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(torch.randn(1, 4, 8, 8))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32
