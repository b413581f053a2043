"""The shipped architecture: an empty state adds nothing, and streaming equals the window."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="models need the train extra")

from polypscope.models.pns_plus_stream import PAST, State, StreamSegmenter  # noqa: E402


@pytest.fixture(scope="module", params=["untrained memory", "trained memory"])
def model(request: pytest.FixtureRequest) -> StreamSegmenter:
    torch.manual_seed(0)
    network = StreamSegmenter("lite0")
    if request.param == "trained memory":
        torch.nn.init.normal_(network.memory.correct[-1].weight, std=0.5)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0  # one picture sets the statistics, so that signals reach the output
    with torch.no_grad():
        network(torch.randn(4, 3, 64, 64))
    return network.eval()


def _logits(model: StreamSegmenter, frame: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
    logits, state = model.step(model.encode(frame), state)
    return torch.nn.functional.interpolate(logits, size=frame.shape[-2:], mode="bilinear"), state


@torch.no_grad()
def test_an_empty_state_is_the_image_network(model: StreamSegmenter) -> None:
    frame = torch.randn(2, 3, 64, 96)
    logits, _ = _logits(model, frame, model.empty_state(2, 64, 96))
    assert torch.allclose(logits, model(frame), atol=1e-5)


@torch.no_grad()
def test_streaming_equals_the_window(model: StreamSegmenter) -> None:
    still = torch.randn(1, 1, 3, 64, 64)
    clip = still + 0.3 * torch.randn(1, PAST + 3, 3, 64, 64)  # frames that resemble each other
    state = model.empty_state(1, 64, 64)
    for index in range(clip.shape[1]):
        logits, state = _logits(model, clip[:, index], state)
        if index == 0:
            continue
        past = clip[:, max(0, index - PAST) : index + 1]
        expected = model.window(torch.cat([clip[:, :1], past], 1))
        assert torch.allclose(logits.sigmoid(), expected.sigmoid(), atol=1e-4)
        assert not torch.allclose(logits, model(clip[:, index]), atol=1e-3), "the state must matter in this test"


@torch.no_grad()
def test_the_anchor_is_the_first_frame_until_the_count_is_zeroed(model: StreamSegmenter) -> None:
    first, second = torch.randn(1, 3, 64, 64), torch.randn(1, 3, 64, 64)
    _, one = _logits(model, first, model.empty_state(1, 64, 64))
    _, two = _logits(model, second, one)
    assert torch.equal(two.anchor, one.anchor)
    _, renewed = _logits(model, second, one._replace(count=torch.zeros_like(one.count)))
    assert torch.equal(renewed.anchor, renewed.memory[:, 0])
