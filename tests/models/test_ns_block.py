"""The NS block equals a slow loop that follows its definition literally, forward and backward."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="models need the train extra")

from polypscope.models.ns_block import NSBlock  # noqa: E402
from polypscope.records.errors import UsageError  # noqa: E402


def slow(block: NSBlock, query, memory):
    """Loops over batch, query frame, group and pixel; every window place outside the image has affinity 0."""
    batch, queries, channels, height, width = query.shape
    frames, depth = memory.shape[1], channels // block.groups
    project = lambda layer, x: torch.einsum("oi,btihw->btohw", layer.weight[:, :, 0, 0], x)
    q, k, v = project(block.query, query), project(block.key, memory), project(block.value, memory)
    rows = []
    for b in range(batch):
        for t in range(queries):
            mixed = torch.zeros(channels, height, width, dtype=query.dtype)
            focus = torch.zeros(block.groups, height, width, dtype=query.dtype)
            for g in range(block.groups):
                part = slice(g * depth, (g + 1) * depth)
                asked = q[b, t, part]
                if block.normalise:
                    weight = block.norm_weight.expand(depth, height, width)
                    bias = block.norm_bias.expand(depth, height, width)
                    asked = torch.nn.functional.layer_norm(asked, asked.shape, weight, bias)
                for y in range(height):
                    for x in range(width):
                        affinities, values = [], []
                        for dy in range(-block.radius, block.radius + 1):
                            for dx in range(-block.radius, block.radius + 1):
                                yy, xx = y + dy * block.dilations[g], x + dx * block.dilations[g]
                                for s in range(frames):
                                    if 0 <= yy < height and 0 <= xx < width:
                                        dot = (asked[:, y, x] * k[b, s, part, yy, xx]).sum()
                                        affinities.append(dot / math.sqrt(depth))
                                        values.append(v[b, s, part, yy, xx])
                                    else:
                                        affinities.append(torch.zeros((), dtype=query.dtype))
                                        values.append(torch.zeros(depth, dtype=query.dtype))
                        affinity = torch.stack(affinities)
                        softmaxed = affinity.softmax(0)
                        weight = affinity if block.aggregation == "raw" else softmaxed
                        mixed[part, y, x] = (weight[:, None] * torch.stack(values)).sum(0)
                        focus[g, y, x] = softmaxed.max()
            out = torch.einsum("oi,ihw->ohw", block.output.weight[:, :, 0, 0], mixed)
            rows.append(out * focus.amax(0) if block.soft_attention else out)
    return torch.stack(rows).reshape(batch, queries, channels, height, width)


@pytest.mark.parametrize(
    ("size", "queries", "frames", "options"),
    [
        ((3, 5), 2, 2, {}),
        ((4, 3), 1, 3, {"aggregation": "softmax"}),
        ((2, 4), 2, 1, {"soft_attention": False}),
        ((3, 3), 1, 2, {"normalise": False}),
        ((5, 2), 1, 1, {"groups": 1, "dilations": (2,)}),
        ((3, 4), 1, 1, {"groups": 4, "dilations": (3, 4, 3, 4)}),
    ],
)
def test_equals_the_loop_forward_and_backward(size, queries, frames, options) -> None:
    torch.manual_seed(0)
    block = NSBlock(8, **{"groups": 2, "radius": 1, "norm_size": size, "dilations": (1, 2), **options}).double()
    if block.normalise:
        torch.nn.init.normal_(block.norm_weight)
        torch.nn.init.normal_(block.norm_bias)
    query = torch.randn(2, queries, 8, *size, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(2, frames, 8, *size, dtype=torch.float64, requires_grad=True)
    inputs = [query, memory, *block.parameters()]
    fast, reference = block(query, memory), slow(block, query, memory)
    assert torch.allclose(fast, reference, rtol=0, atol=1e-9)
    direction = torch.randn_like(fast)
    for ours, theirs in zip(
        torch.autograd.grad((fast * direction).sum(), inputs),
        torch.autograd.grad((reference * direction).sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-9)


def test_the_norm_weights_follow_another_map_size() -> None:
    block = NSBlock(8, 2, norm_size=(4, 6))
    with torch.no_grad():
        block.norm_weight.fill_(1.5)
    other = NSBlock(8, 2, norm_size=None)
    other.load_state_dict(
        {**block.state_dict(), "norm_weight": torch.full((4, 1, 1), 1.5), "norm_bias": torch.zeros(4, 1, 1)}
    )
    x = torch.randn(1, 1, 8, 7, 5)
    assert torch.allclose(block(x, x), other(x, x), atol=1e-6)


def test_groups_must_divide_the_channels() -> None:
    with pytest.raises(UsageError, match="expected groups that divide 8 channels, found 3"):
        NSBlock(8, 3)
