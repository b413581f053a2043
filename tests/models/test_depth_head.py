"""The depth head: its look at the whole picture against a loop, and any size of input."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="networks need the train extra")

from polypscope.models.depth_head import DepthHead, Survey  # noqa: E402


def test_a_survey_equals_a_loop_over_places() -> None:
    torch.manual_seed(0)
    survey = Survey(8, heads=2).double().eval()
    y, place = torch.randn(2, 8, 4, 6, dtype=torch.double), torch.randn(2, 8, 4, 6, dtype=torch.double)
    with torch.no_grad():
        told = survey(y, place)
        seen = survey.norm(y) + place
        small = torch.stack(
            [seen[..., a : a + 2, b : b + 2].mean((2, 3)) for a in (0, 2) for b in (0, 2, 4)], -1
        )  # (2, 8, 6)
        mixed = torch.zeros_like(y)
        for n in range(2):
            keys = survey.keys.weight[..., 0, 0] @ small[n] + survey.keys.bias[:, None]
            values = survey.values.weight[..., 0, 0] @ small[n] + survey.values.bias[:, None]
            for row in range(4):
                for column in range(6):
                    query = survey.query.weight[..., 0, 0] @ seen[n, :, row, column] + survey.query.bias
                    for part in (slice(0, 4), slice(4, 8)):
                        alike = [float(query[part] @ keys[part, k]) / math.sqrt(4) for k in range(6)]
                        share = torch.tensor(alike, dtype=torch.double).softmax(0)
                        mixed[n, part, row, column] = values[part] @ share
        expected = y + survey.out(mixed)
    torch.testing.assert_close(told, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [64, 320, 352])
def test_depth_has_a_quarter_of_the_size_and_starts_at_the_typical(size: int) -> None:
    head = DepthHead((24, 40, 96)).eval()
    maps = [torch.rand(2, c, size // s, size // s) for c, s in zip(head.channels, (4, 8, 16), strict=True)]
    with torch.no_grad():
        head.out.weight.zero_()
        told = head(*maps, torch.rand(2, 3, size, size), torch.rand(2, 3, 22, 22))
    assert told.shape == (2, 2, size // 4, size // 4)
    assert told[:, 0].exp().mean() == pytest.approx(30, rel=1e-5)
