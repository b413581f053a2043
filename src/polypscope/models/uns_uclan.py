"""UNS-UCLAN's entry in the MICCAI 2015 challenge (Bernal et al. 2017): CNNs at three scales, joined by a perceptron.

Three CNNs of one architecture and with weights of their own look at the picture at scales 1, 1/2 and 1/4. Each learns
by itself whether the centre of its window lies in a polyp. Then its fully connected part is left out, and the features
of all three go into one multi-layer perceptron, which is trained apart from them. The result is its probability map,
whose peaks are the detections.

The entry's layers are not published. Ours have windows of 32×32 (32, 64 and 128 pixels of the picture), three
convolutions and two pools, and are slid over the picture, windows four pixels apart; between the centres of coarse
windows their part in the perceptron is interpolated. Trained apart means here that the perceptron's error stops before
the CNNs, and theirs before it: all learn in one run, none from another, but the perceptron sees features that still
change.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polypscope.models.sliding import convolution, resized, surrounded

WINDOW_PX = 32
STEP_PX = 4
SCALES = 3  # each half of the one before


class ScaleNetwork(nn.Module):
    """The CNN of one scale: `convolutions` sees, `connected` judges."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            convolution(3, width, 5),
            nn.MaxPool2d(2),
            convolution(width, 2 * width, 5),
            nn.MaxPool2d(2),
            convolution(2 * width, 4 * width, 3),
        )
        self.connected = nn.Sequential(convolution(4 * width, hidden, 3), nn.Conv2d(hidden, 1, 1))

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W), sides multiples of 4, to (B, C, H / 4 + 2, W / 4 + 2): 3×3 of them belong to a window."""
        return self.convolutions(surrounded(x, WINDOW_PX, STEP_PX))


class UNSUCLAN(nn.Module):
    """Image (B, 3, H, W) to logits (B, 1, H, W); in training the perceptron's map, then that of each CNN, finest first.

    Parameters
    ----------
    width : channels of each CNN's first convolution.
    hidden : neurons of the perceptron, and of the fully connected part of each CNN.
    """

    def __init__(self, width: int = 32, hidden: int = 256) -> None:
        super().__init__()
        self.networks = nn.ModuleList(ScaleNetwork(width, hidden) for _ in range(SCALES))
        # A layer on concatenated features is a sum of one layer for each scale, which can be slid at its own step.
        self.joined = nn.ModuleList(nn.Conv2d(4 * width, hidden, 3, bias=index == 0) for index in range(SCALES))
        self.output = nn.Conv2d(hidden, 1, 1)

    def features(self, x: Tensor) -> list[Tensor]:
        """What the convolutional part of each CNN sees of the picture at its scale."""
        coarsest = STEP_PX * 2 ** (SCALES - 1)
        at_scale = resized(x, [max(1, round(int(side) / coarsest)) * coarsest for side in x.shape[-2:]])
        seen = []
        for index, network in enumerate(self.networks):
            at_scale = at_scale if index == 0 else nn.functional.avg_pool2d(at_scale, 2)
            seen.append(network.features(at_scale))
        return seen

    def hidden(self, seen: list[Tensor]) -> Tensor:
        """The perceptron's neurons before their activation, at every window of the finest scale."""
        parts = [layer(features) for layer, features in zip(self.joined, seen, strict=True)]
        finest = [int(side) for side in parts[0].shape[-2:]]
        return torch.stack([resized(part, finest) for part in parts]).sum(0)

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        size = [int(side) for side in x.shape[-2:]]
        seen = self.features(x)
        joined = resized(self.output(self.hidden([features.detach() for features in seen]).relu()), size)
        if not self.training:
            return joined
        alone = [network.connected(features) for network, features in zip(self.networks, seen, strict=True)]
        return [joined, *(resized(logits, size) for logits in alone)]
