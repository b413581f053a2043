"""OUS: the dense network equals AlexNet on cut-out patches, with one set of weights for all scales."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="networks need the train extra")

from polypscope.models.ous import OUS, STEP_PX, WINDOW_PX  # noqa: E402
from polypscope.models.sliding import BLACK  # noqa: E402
from polypscope.records.errors import UsageError  # noqa: E402
from polypscope.training.loop import normalise  # noqa: E402


@pytest.fixture
def network() -> OUS:
    torch.manual_seed(0)
    network = OUS(width=0.05).train()
    with torch.no_grad():
        for _ in range(20):  # batch norms as after training: fresh ones let the signal fade on its way
            network(torch.rand(2, 3, 64, 64) * 2 - 1)
    return network.eval()


def _on_patch(network: OUS, patch: torch.Tensor) -> torch.Tensor:
    """The logit of one patch (3, 96, 96) with layers that are fully connected, as in AlexNet."""
    y = network.convolutions(patch[None]).flatten()
    for layer, norm, activation in network.connected:
        y = activation(norm((layer.weight.flatten(1) @ y)[None, :, None, None])).flatten()
    return network.output.weight.flatten(1) @ y + network.output.bias


def _largest_difference(network: OUS) -> tuple[float, float]:
    """Between the dense form and patches, over all windows of a picture; and how much windows differ at all."""
    torch.manual_seed(1)
    x = torch.rand(1, 3, 24, 32) * 2 - 1
    beyond = (WINDOW_PX - STEP_PX) // 2
    padded = torch.nn.functional.pad(x, [beyond] * 4, value=BLACK)[0]
    with torch.no_grad():
        dense = network.centred(x)
        assert dense.shape == (1, 1, 24 // STEP_PX, 32 // STEP_PX)
        patches = torch.zeros_like(dense)
        for row in range(dense.shape[2]):
            for column in range(dense.shape[3]):
                top, left = row * STEP_PX, column * STEP_PX
                patches[0, 0, row, column] = _on_patch(
                    network, padded[:, top : top + WINDOW_PX, left : left + WINDOW_PX]
                )
    return float((dense - patches).abs().max()), float(patches.std())


def test_the_dense_form_equals_patches_at_every_window(network: OUS) -> None:
    difference, spread = _largest_difference(network)
    assert spread > 1e-2
    assert difference < 1e-5


def test_with_padded_convolutions_it_would_not(network: OUS) -> None:
    for index in (4, 5):
        network.convolutions[index][0].padding = (1, 1)
    connected = network.connected[0][0]
    connected.weight.data = connected.weight.data.repeat(1, 1, 3, 3)[..., :7, :7]  # padding leaves 7×7 of a window
    assert _largest_difference(network)[0] > 1e-3


def test_black_around_the_picture_is_what_a_black_pixel_is() -> None:
    assert float(normalise(torch.zeros(1, 3, 1, 1, dtype=torch.uint8)).max()) == BLACK


def test_a_window_answers_for_its_centre(network: OUS) -> None:
    x = torch.full((1, 3, 128, 128), BLACK)
    x.requires_grad_()
    network.scales = (1.0,)
    network.centred(x)[0, 0, 8, 5].backward()
    rows, columns = (x.grad[0].abs().sum(0).sum(axis).nonzero().flatten() for axis in (1, 0))
    assert abs((rows.min() + rows.max()) / 2 - (8 * STEP_PX + 3.5)) <= 4
    assert abs((columns.min() + columns.max()) / 2 - (5 * STEP_PX + 3.5)) <= 4
    assert rows.max() - rows.min() < WINDOW_PX


def test_a_picture_twice_as_large_looks_the_same_at_half_the_scale(network: OUS) -> None:
    x = torch.rand(1, 3, 64, 96)
    large = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
    with torch.no_grad():
        network.scales = (1.0,)
        small_map = network.centred(x)
        expected = torch.nn.functional.interpolate(small_map, size=(128, 192), mode="bilinear", align_corners=False)
        network.scales = (0.5,)
        assert torch.allclose(network(large), expected, atol=1e-5)


@pytest.mark.parametrize("scale", [0, 1, 2])
def test_all_scales_share_all_weights_and_the_surest_speaks(network: OUS, scale: int) -> None:
    maps = network.train()(torch.rand(2, 3, 64, 64))
    assert len(maps) == 4
    assert torch.equal(maps[0], torch.maximum(torch.maximum(maps[1], maps[2]), maps[3]))
    maps[1 + scale].square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


@pytest.mark.parametrize("scales", [(), (0.25,), (1.0, 3.0)])
def test_scales_that_skip_pixels_are_refused(scales: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match=r"expected one or more from 0\.5 to 2"):
        OUS(scales=scales)
