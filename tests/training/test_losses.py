"""Losses against their definitions, written out."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra")

from polypscope.training.losses import (  # noqa: E402
    boundary_weight,
    deep_supervision,
    relative_error,
    scale_loss,
    structure_loss,
)


def test_the_structure_loss_of_one_picture_by_hand() -> None:
    target = torch.zeros(1, 1, 2, 2)
    target[..., 0, 0] = 1.0
    weight = torch.tensor([[[[3.0, 1.0], [1.0, 1.0]]]])
    logits = torch.zeros(1, 1, 2, 2)  # a probability of one half everywhere
    smooth = 4e-3
    dice = 1 - (2 * 0.5 * 3 + smooth) / (0.5 * 6 + 3 + smooth)
    assert float(structure_loss(logits, target, weight)) == pytest.approx(float(torch.tensor(2.0).log()) + dice)


def test_every_level_is_compared_at_its_own_size_with_its_own_share() -> None:
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(2, 1, 32, 32, generator=generator) > 0.7).float()
    levels = [torch.randn(2, 1, side, side, generator=generator) for side in (8, 4, 2, 2)]
    expected = 0.0
    for level, share, shrink in zip(levels, (1.0, 0.4, 0.3, 0.3), (2, 4, 4, 4), strict=True):
        truth = torch.nn.functional.avg_pool2d(target, shrink)
        size = (32 // shrink, 32 // shrink)
        guess = torch.nn.functional.interpolate(level, size, mode="bilinear", align_corners=False)
        expected += share * float(structure_loss(guess, truth, boundary_weight(truth)))
    assert float(deep_supervision(levels, target)) == pytest.approx(expected, rel=1e-5)


def test_who_is_unsure_by_a_factor_does_best_a_little_below_the_middle() -> None:
    """Of guesses at a distance whose logarithm errs like a Laplace distribution, the one with the least mean relative
    error is known in closed form: exp(-b log(1 + b) / (1 - b)) times the middle."""
    b = 0.2
    share = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    truth = -b * torch.sign(share - 0.5) * torch.log1p(-2 * (share - 0.5).abs())  # the logarithm, at equal shares
    guesses = torch.linspace(-0.1, 0.05, 151, dtype=torch.float64)
    costs = torch.stack([relative_error(guess - truth).abs().mean() for guess in guesses])
    expected = -b * math.log1p(b) / (1 - b)
    assert float(guesses[costs.argmin()]) == pytest.approx(expected, abs=2e-3)
    plain = torch.stack([(guess - truth).abs().mean() for guess in guesses])
    assert float(guesses[plain.argmin()]) == pytest.approx(0, abs=2e-3)


def test_a_relative_error_is_what_it_says_and_stays_finite_far_off() -> None:
    ratio = torch.tensor([0.5, 0.9, 1.0, 1.2, 2.5])
    assert torch.allclose(relative_error(ratio.log()), ratio - 1, atol=1e-6)
    far = torch.tensor([1.0 - 1e-4, 1.0 + 1e-4, 60.0], requires_grad=True)
    told = relative_error(far)
    told.sum().backward()
    below, above, last = told.tolist()
    assert 0 < above - below < 1e-3
    assert last == pytest.approx(60 * math.e - 1, rel=1e-6)
    assert torch.allclose(far.grad, torch.tensor(math.e), rtol=1e-3)


def test_scale_is_the_mean_error_of_a_frame_wherever_it_has_a_value() -> None:
    ray_mm = torch.full((3, 4, 4), 20.0)
    out = torch.full((3, 2, 4, 4), 20.0).log()
    out[0, 0] += 0.3  # too far as a whole
    out[1, 0, :2] += 0.5  # too far above, too near below: right as a whole
    out[1, 0, 2:] -= 0.5
    out[2, 0] -= 0.1
    out[2, 0, 0, 0] = 99  # where there is no truth
    ray_mm[2, 0, 0] = torch.nan
    assert float(scale_loss(out, ray_mm)) == pytest.approx((math.expm1(0.3) - math.expm1(-0.1)) / 3, abs=1e-6)
    assert float(scale_loss(out, torch.full_like(ray_mm, torch.nan))) == 0
