"""Muon: its steps against the singular value decomposition that they stand for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra")

from polypscope.models.depth_head import DepthHead  # noqa: E402
from polypscope.training.muon import Muon, make_optimisers, nearly_orthonormal  # noqa: E402


@pytest.mark.parametrize("shape", [(24, 96), (96, 24), (48, 48)])
def test_directions_stay_and_their_lengths_become_alike(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    lengths = torch.logspace(0, -1.5, min(shape))
    turned = u.T @ nearly_orthonormal(u @ torch.diag(lengths) @ v) @ v.T
    told = turned.diagonal()
    assert told.min() > 0.6
    assert told.max() < 1.3
    assert float((turned - torch.diag(told)).abs().max()) < 0.1


def test_a_step_is_as_large_as_one_of_adamw() -> None:
    for shape in ((32, 16, 1, 1), (16, 64, 3, 3), (192, 32, 1, 1)):
        torch.manual_seed(1)
        weight = torch.nn.Parameter(torch.zeros(shape))
        weight.grad = torch.randn(shape)
        Muon([weight], lr=0.1).step()
        assert 0.012 < float(weight.detach().square().mean().sqrt()) < 0.024, shape
        # It goes downhill.
        assert float((weight.detach() * weight.grad).sum()) < 0


def test_a_weight_goes_on_for_a_while_without_a_push() -> None:
    torch.manual_seed(3)
    weight = torch.nn.Parameter(torch.zeros(16, 16))
    optimiser = Muon([weight], lr=0.1)
    weight.grad = torch.randn(16, 16)
    optimiser.step()
    first = weight.detach().clone()
    weight.grad = torch.zeros(16, 16)
    optimiser.step()
    torch.testing.assert_close(weight.detach(), 2 * first, rtol=0.05, atol=1e-3)


def test_weights_decay_and_those_without_gradient_stay() -> None:
    decayed, idle = torch.nn.Parameter(torch.full((16, 16), 2.0)), torch.nn.Parameter(torch.ones(16, 16))
    decayed.grad = torch.zeros(16, 16)
    Muon([decayed, idle], lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(decayed.detach(), torch.full((16, 16), 1.9))
    torch.testing.assert_close(idle.detach(), torch.ones(16, 16))


def test_it_learns_what_hides_in_faint_directions() -> None:
    """A regression whose inputs differ a hundredfold in strength."""
    torch.manual_seed(2)
    strength = torch.logspace(0, -2, 32)
    x = torch.randn(512, 32) * strength
    truth = torch.randn(16, 32)
    left = {}
    for name in ("muon", "adamw"):
        weight = torch.nn.Parameter(torch.zeros(16, 32))
        rate = {"muon": 0.1, "adamw": 0.02}[name]
        optimiser = Muon([weight], rate) if name == "muon" else torch.optim.AdamW([weight], rate, weight_decay=0)
        for step in range(150):
            optimiser.param_groups[0]["lr"] = rate * (1 - step / 150)
            optimiser.zero_grad()
            (x @ (weight - truth).T).square().mean().backward()
            optimiser.step()
        left[name] = float((x @ (weight.detach() - truth).T).square().mean())
    assert left["muon"] < left["adamw"] / 5, left


def test_every_weight_has_one_optimiser() -> None:
    head = DepthHead((24, 40))
    muon, adamw = make_optimisers(head, 1e-3)
    taken = [weight for group in muon.param_groups + adamw.param_groups for weight in group["params"]]
    assert len({id(weight) for weight in taken}) == len(taken) == len(list(head.parameters()))
    mixed = {id(weight) for group in muon.param_groups for weight in group["params"]}
    assert id(head.stage5[0]._project_conv.weight) in mixed
    assert id(head.stage5[0]._depthwise_conv.weight) not in mixed
    assert id(head.out.weight) not in mixed
    assert all(group["weight_decay"] == 0 for group in adamw.param_groups for p in group["params"] if p.ndim == 1)
