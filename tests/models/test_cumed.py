"""CUMED: every auxiliary classifier has its say in the fused map, its own lesson, and its own depth."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="networks need the train extra")

from polypscope.models.cumed import BRANCHES, CUMED  # noqa: E402
from polypscope.training.losses import deep_supervision  # noqa: E402


@pytest.fixture
def network() -> CUMED:
    torch.manual_seed(0)
    network = CUMED(width=4, features=4).train()
    with torch.no_grad():
        for _ in range(30):  # batch norms as after training: fresh ones let the signal fade on its way
            network(torch.rand(2, 3, 64, 64))
    return network


@pytest.mark.parametrize("branch", range(BRANCHES))
def test_every_branch_contributes_to_the_fused_map(network: CUMED, branch: int) -> None:
    network.eval()
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        whole = network(x)
        network.branches[branch].refine[0].weight.zero_()
        assert (network(x) - whole).abs().max() > 0.01


@pytest.mark.parametrize("branch", range(BRANCHES))
def test_an_auxiliary_classifier_teaches_its_own_level_and_those_above_it(network: CUMED, branch: int) -> None:
    maps = network.train()(torch.rand(2, 3, 64, 64))
    assert len(maps) == 1 + BRANCHES
    maps[1 + branch].square().mean().backward()
    taught = [stage[0][0].weight.grad is not None for stage in network.encoder.stages]
    assert taught == [stage <= branch + 2 for stage in range(5)]
    assert [b.refine[0].weight.grad is not None for b in network.branches] == [b == branch for b in range(BRANCHES)]
    assert network.classifier.weight.grad is None


@pytest.mark.parametrize("level", range(1 + BRANCHES))
def test_the_trainer_counts_the_fused_map_and_all_three_classifiers(level: int) -> None:
    truth = torch.zeros(1, 1, 64, 64)
    truth[..., 20:40, 20:40] = 1
    maps = [torch.zeros(1, 1, 64, 64) for _ in range(1 + BRANCHES)]
    better = [m + 4 * (2 * truth - 1) if index == level else m for index, m in enumerate(maps)]
    assert deep_supervision(better, truth) < deep_supervision(maps, truth) - 0.1


def test_the_down_path_has_the_levels_of_vgg(network: CUMED) -> None:
    levels = network.eval().encoder(torch.rand(1, 3, 64, 96))
    assert [tuple(level.shape[1:]) for level in levels] == [
        (4, 64, 96), (8, 32, 48), (16, 16, 24), (32, 8, 12), (32, 4, 6),
    ]  # fmt: skip
    assert [len(stage) for stage in network.encoder.stages] == [2, 2, 3, 3, 3]


@pytest.mark.parametrize("shape", [(64, 96), (70, 90), (100, 36)])
def test_any_size_goes(network: CUMED, shape: tuple[int, int]) -> None:
    assert network.eval()(torch.rand(1, 3, *shape)).shape == (1, 1, *shape)
