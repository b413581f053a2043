"""Losses of polyp segmentation: boundary-weighted BCE and overlap, at several depths of the decoder."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def boundary_weight(target: Tensor, extent: float = 0.09) -> Tensor:
    """1 far from any boundary, up to 6 at one, as in PraNet (Fan et al. 2020); same shape as `target`, (B, 1, H, W).

    PraNet averages over 31 pixels of a 352-pixel image at full size; ours averages over the same extent of a map that
    was first reduced eight times, which costs a hundredth.
    """
    small = nn.functional.interpolate(target, scale_factor=0.125, mode="area")
    window = max(3, round(extent * min(small.shape[-2:])) | 1)
    near = nn.functional.avg_pool2d(small, window, 1, window // 2, count_include_pad=False)
    near = nn.functional.interpolate(near, size=target.shape[-2:], mode="bilinear", align_corners=False)
    return 1 + 5 * (near - target).abs()


def structure_loss(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """BCE + soft Dice, both weighted; scalar. All arguments (B, 1, H, W), target in [0, 1].

    The overlap term is smoothed by 0.1 % of the picture, so that an empty target costs little for a faint response and
    the full price for a painted polyp: negatives are learnt without swamping the positives.
    """
    bce = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    bce = (weight * bce).sum((2, 3)) / weight.sum((2, 3))
    probability = logits.sigmoid()
    smooth = target[0].numel() * 1e-3
    intersection = (probability * target * weight).sum((2, 3))
    union = ((probability + target) * weight).sum((2, 3))
    dice = 1 - (2 * intersection + smooth) / (union + smooth)
    return (bce + dice).mean()


def deep_supervision(levels: Sequence[Tensor], target: Tensor, weights: Sequence[float] = (1.0, 0.4, 0.3)) -> Tensor:
    """Weighted sum of `structure_loss` over decoder levels, finest first.

    The finest level is compared at half the target's size (the logits carry no more), the others at a quarter. Levels
    beyond the weights count as much as the last weight, so that none that a network has goes untaught.
    """
    total = torch.zeros((), dtype=torch.float32, device=target.device)
    for index, level in enumerate(levels):
        share = weights[min(index, len(weights) - 1)]
        truth = nn.functional.interpolate(target, scale_factor=0.5 if index == 0 else 0.25, mode="area")
        guess = nn.functional.interpolate(level.float(), size=truth.shape[-2:], mode="bilinear", align_corners=False)
        total = total + share * structure_loss(guess, truth, boundary_weight(truth))
    return total


def presence_loss(answers: Sequence[Tensor], target: Tensor, auxiliary: float = 0.3) -> Tensor:
    """BCE of "there is a polyp" for whole pictures; scalar. Answers (B, 1, 1, 1), target (B, 1, H, W).

    The first answer is the main one; the others count as much as GoogLeNet's auxiliary ones (Szegedy et al. 2015).
    """
    there = (target.flatten(1).amax(1) > 0.5).float()
    told = [nn.functional.binary_cross_entropy_with_logits(one.float().flatten(), there) for one in answers]
    return told[0] + auxiliary * sum(told[1:], torch.zeros_like(told[0]))


def relative_error(log_error: Tensor) -> Tensor:
    """predicted / true - 1 from the logarithm of the ratio; a straight line from 2.7 times too far on.

    Who is unsure by a factor and is judged by |predicted - true| / true does best a little below the middle, which the
    error of the logarithm would not teach.
    """
    return torch.where(log_error < 1, torch.expm1(log_error.clamp(max=1)), math.e * log_error - 1)


def scale_loss(out: Tensor, ray_mm: Tensor) -> Tensor:
    """How far a frame's distances are off as a whole: the relative error of their geometric mean, averaged over frames.

    A frame has thousands of pixels to learn relief from and one scale, which this makes count.
    """
    valid = torch.isfinite(ray_mm) & (ray_mm > 1)
    truth = torch.where(valid, ray_mm, torch.ones_like(ray_mm)).log()
    error = torch.where(valid, out[:, 0] - truth, torch.zeros_like(truth))
    return relative_error(error.sum((1, 2)) / valid.sum((1, 2)).clamp(min=1)).abs().mean()


RELIEF = ((1, 2.0), (2, 0.6), (4, 0.4), (8, 0.3))  # pixels apart, and how much their difference counts


def depth_loss(out: Tensor, ray_mm: Tensor, weight: Tensor) -> Tensor:
    """Laplace likelihood of the relative error, and the error of log differences over 1, 2, 4 and 8 pixels.

    The differences are what relief is made of: without the wide ones, a polyp is drawn flatter than it is.

    out (B, 2, h, w); ray_mm (B, h, w), NaN without value; weight (B, h, w) says which pixels matter more.
    """
    valid = torch.isfinite(ray_mm) & (ray_mm > 1)
    if not valid.any():
        return out.sum() * 0
    truth = torch.where(valid, ray_mm, torch.ones_like(ray_mm)).log()
    error = out[:, 0] - truth
    log_b = out[:, 1].clamp(-5.0, 1.0)
    counted = torch.where(valid, weight, torch.zeros_like(weight))
    total = counted.sum()
    off = relative_error(error).abs()
    likelihood = ((off * (-log_b).exp() + log_b) * counted).sum() / total
    plain = (off * counted).sum() / total
    relief = plain.new_zeros(())
    for step, share in RELIEF:
        for axis in (1, 2):
            length = error.shape[axis] - step
            both = torch.minimum(counted.narrow(axis, step, length), counted.narrow(axis, 0, length))
            difference = error.narrow(axis, step, length) - error.narrow(axis, 0, length)
            relief = relief + share * (difference.abs() * both).sum() / both.sum().clamp(min=1)
    return 0.3 * likelihood + plain + relief
