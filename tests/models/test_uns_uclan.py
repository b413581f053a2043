"""UNS-UCLAN: three CNNs of one architecture, each taught alone, and a perceptron on all features, taught apart."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="networks need the train extra")

from polypscope.models.sliding import BLACK  # noqa: E402
from polypscope.models.uns_uclan import SCALES, STEP_PX, UNSUCLAN, WINDOW_PX  # noqa: E402


@pytest.fixture
def network() -> UNSUCLAN:
    torch.manual_seed(0)
    network = UNSUCLAN(width=4, hidden=8).train()
    with torch.no_grad():
        for _ in range(20):  # batch norms as after training: fresh ones let the signal fade on its way
            network(torch.rand(2, 3, 32, 32) * 2 - 1)
    return network


def _taught(network: UNSUCLAN, level: int) -> list[str]:
    """Parts that learn from one of the maps: a CNN's number, "perceptron"."""
    network(torch.rand(2, 3, 32, 32))[level].square().mean().backward()
    names = {name for name, value in network.named_parameters() if value.grad is not None and value.grad.any()}
    return sorted({name.split(".")[1] if name.startswith("networks.") else "perceptron" for name in names})


@pytest.mark.parametrize("level", range(1 + SCALES))
def test_each_cnn_and_the_perceptron_learn_apart(network: UNSUCLAN, level: int) -> None:
    assert _taught(network, level) == (["perceptron"] if level == 0 else [str(level - 1)])


def test_the_scales_have_one_architecture_and_weights_of_their_own(network: UNSUCLAN) -> None:
    first, *others = ({name: value.shape for name, value in n.state_dict().items()} for n in network.networks)
    assert all(other == first for other in others)
    kernels = [n.convolutions[0][0].weight for n in network.networks]
    assert not torch.equal(kernels[0], kernels[1])
    assert not torch.equal(kernels[1], kernels[2])


@pytest.mark.parametrize("scale", range(SCALES))
def test_every_scale_has_its_say(network: UNSUCLAN, scale: int) -> None:
    network.eval()
    x = torch.rand(1, 3, 48, 64)
    with torch.no_grad():
        whole = network(x)
        network.joined[scale].weight.zero_()
        assert (network(x) - whole).abs().max() > 0.01


def test_the_perceptron_sees_the_features_of_all_windows_concatenated(network: UNSUCLAN) -> None:
    network.eval()
    with torch.no_grad():
        seen = network.features(torch.rand(1, 3, 32, 48))
        rows, columns = 32 // STEP_PX, 48 // STEP_PX
        windows = []
        for scale, features in enumerate(seen):
            flat = torch.nn.functional.unfold(features, 3).unflatten(2, (rows >> scale, columns >> scale))
            size = (rows, columns)
            windows.append(torch.nn.functional.interpolate(flat, size=size, mode="bilinear", align_corners=False))
        weight = torch.cat([layer.weight.flatten(1) for layer in network.joined], 1)
        expected = torch.einsum("hf,bfyx->bhyx", weight, torch.cat(windows, 1)) + network.joined[0].bias[:, None, None]
        assert torch.allclose(network.hidden(seen), expected, atol=1e-5)


def test_the_map_is_the_output_of_active_neurons(network: UNSUCLAN) -> None:
    network.eval()
    x = torch.rand(1, 3, 32, 48)
    with torch.no_grad():
        neurons = network.hidden(network.features(x))
        assert (neurons < 0).any()
        weight, bias = network.output.weight.flatten(), network.output.bias
        expected = (neurons.clamp(min=0) * weight[:, None, None]).sum(1, keepdim=True) + bias
        expected = torch.nn.functional.interpolate(expected, size=(32, 48), mode="bilinear", align_corners=False)
        assert torch.allclose(network(x), expected, atol=1e-5)


def test_a_cnn_says_the_same_of_a_window_that_was_cut_out(network: UNSUCLAN) -> None:
    one = network.eval().networks[0]
    x = torch.rand(1, 3, 16, 20)
    padded = torch.nn.functional.pad(x, [(WINDOW_PX - STEP_PX) // 2] * 4, value=BLACK)
    with torch.no_grad():
        dense = one.connected(one.features(x))
        assert dense.shape == (1, 1, 4, 5)
        for row, column in ((0, 0), (1, 3), (3, 4)):
            top, left = row * STEP_PX, column * STEP_PX
            patch = padded[..., top : top + WINDOW_PX, left : left + WINDOW_PX]
            alone = one.connected(one.convolutions(patch))
            assert alone.shape == (1, 1, 1, 1)
            assert abs(float(alone) - float(dense[0, 0, row, column])) < 1e-5


@pytest.mark.parametrize("shape", [(64, 96), (70, 90), (20, 100)])
def test_any_size_goes(network: UNSUCLAN, shape: tuple[int, int]) -> None:
    assert network.eval()(torch.rand(1, 3, *shape)).shape == (1, 1, *shape)
