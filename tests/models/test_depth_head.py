"""The depth head: its look at the whole picture against a loop, and any size of input."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="networks need the train extra")

from polypscope.models.depth_head import DepthHead, Survey  # noqa: E402
from polypscope.models.efficientnet_lite import EfficientNetLite  # noqa: E402
from polypscope.records.errors import UsageError  # noqa: E402


def test_a_survey_equals_a_loop_over_places() -> None:
    torch.manual_seed(0)
    survey = Survey(8, heads=2).double().eval()
    y, place = torch.randn(2, 8, 4, 6, dtype=torch.double), torch.randn(2, 8, 4, 6, dtype=torch.double)
    with torch.no_grad():
        told = survey(y, place)
        seen = survey.norm(y) + place
        flat = seen.flatten(2)
        mixed = torch.zeros_like(y)
        for n in range(2):
            keys = survey.keys.weight[..., 0, 0] @ flat[n] + survey.keys.bias[:, None]
            values = survey.values.weight[..., 0, 0] @ flat[n] + survey.values.bias[:, None]
            for row in range(4):
                for column in range(6):
                    query = survey.query.weight[..., 0, 0] @ seen[n, :, row, column] + survey.query.bias
                    for part in (slice(0, 4), slice(4, 8)):
                        alike = [float(query[part] @ keys[part, k]) / math.sqrt(4) for k in range(24)]
                        share = torch.tensor(alike, dtype=torch.double).softmax(0)
                        mixed[n, part, row, column] = values[part] @ share
        expected = y + survey.out(mixed)
    torch.testing.assert_close(told, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [64, 320, 352])
def test_depth_has_a_quarter_of_the_size_and_starts_at_the_typical(size: int) -> None:
    head = DepthHead((24, 40)).eval()
    maps = [torch.rand(2, c, size // s, size // s) for c, s in zip(head.channels, (4, 8), strict=True)]
    with torch.no_grad():
        head.out.weight.zero_()
        told = head(*maps, torch.rand(2, 3, size, size), torch.rand(2, 3, 22, 22))
    assert told.shape == (2, 2, size // 4, size // 4)
    assert told[:, 0].exp().mean() == pytest.approx(30, rel=1e-5)


@pytest.mark.parametrize(("variant", "left_out"), [("lite0", 0), ("lite1", 3)])
def test_the_branch_starts_as_the_encoder_that_it_leaves(variant: str, left_out: int) -> None:
    torch.manual_seed(0)
    encoder, head = EfficientNetLite(variant).eval(), DepthHead().eval()
    head.take_after(encoder)
    with torch.no_grad():
        _, f4, f8, f16, _ = encoder(torch.rand(1, 3, 64, 64))
        taken = f8 + head.glance(torch.rand(1, 3, 16, 16)) + head.grain(f4)
        torch.testing.assert_close(taken, f8)  # what is added starts as nothing
        own = head.stage4(head.stage3(f8))
    if left_out == 0:
        torch.testing.assert_close(own, f16)
    blocks = [block for stage in (head.stage3, head.stage4, head.stage5) for block in stage]
    theirs = encoder._blocks[encoder.taps[2] + 1 : -1]
    assert len(theirs) == len(blocks) + left_out
    same = [any(torch.equal(a._project_conv.weight, b._project_conv.weight) for b in theirs
                if a._project_conv.weight.shape == b._project_conv.weight.shape) for a in blocks]  # fmt: skip
    assert all(same)
    assert [block.residual for block in blocks] == [False, True, True] * 2 + [False, True, True, True]


def test_an_encoder_of_other_widths_is_refused() -> None:
    with pytest.raises(UsageError, match="widths of EfficientNet-Lite0 and 1, found lite2"):
        DepthHead((24, 48)).take_after(EfficientNetLite("lite2"))
