"""OUS's entry in the MICCAI 2015 challenge (Bernal et al. 2017): AlexNet on patches of 96×96, slid over the picture.

A window that AlexNet takes for a polyp marks its centre. The window slides over the picture at three scales, with the
same weights (the entry used three for stills and two for videos: `scales`), and the surest scale speaks for a place.
The first two pools are 2×2 and the last is left out, as in the entry. Fully connected layers are written as
convolutions, so that the network answers for all windows, eight pixels apart, at the price of few.

Where ours differs: AlexNet pads its convolutions, and what a window sees beyond its border would then depend on whether
it was cut out; ours do not pad, so that a window says the same either way. To have room for that, the first convolution
is 10 wide in steps of 2, not 11 in steps of 4. Batch norms are in the place of local normalisation and dropout: no
weights of CaffeNet are at hand, and a run must be resumable to the bit. Training is dense as well: every window of a
picture is asked whether its centre lies in a polyp. One logit is in the place of two outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from polypscope.models.sliding import convolution, resized, surrounded
from polypscope.records.errors import UsageError

WINDOW_PX = 96
STEP_PX = 8


class OUS(nn.Module):
    """Image (B, 3, H, W) to logits (B, 1, H, W); in training the map of all scales, then that of each.

    Parameters
    ----------
    width : channels, relative to AlexNet's.
    scales : of the picture, below the window; at least a half, since reducing further in one step would skip pixels.
    """

    def __init__(self, width: float = 1.0, scales: Sequence[float] = (1.0, 0.71, 0.5)) -> None:
        super().__init__()
        if not scales or not all(0.5 <= scale <= 2 for scale in scales):
            raise UsageError(f"Scales: expected one or more from 0.5 to 2, found {list(scales)}.")
        self.scales = tuple(scales)
        c1, c2, c3, c4, c5, hidden = (max(4, round(width * n)) for n in (96, 256, 384, 384, 256, 4096))
        self.convolutions = nn.Sequential(
            convolution(3, c1, 10, stride=2),
            nn.MaxPool2d(2),
            convolution(c1, c2, 5),
            nn.MaxPool2d(2),
            convolution(c2, c3, 3),
            convolution(c3, c4, 3),
            convolution(c4, c5, 3),
        )
        self.connected = nn.Sequential(convolution(c5, hidden, 3), convolution(hidden, hidden, 1))
        self.output = nn.Conv2d(hidden, 1, 1)

    def windows(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) to the logit of each whole window in it, (B, 1, (H - 96) // 8 + 1, (W - 96) // 8 + 1)."""
        return self.output(self.connected(self.convolutions(x)))

    def centred(self, x: Tensor) -> Tensor:
        """(B, 3, H, W), sides multiples of 8, to the logits (B, 1, H / 8, W / 8) of windows centred there."""
        return self.windows(surrounded(x, WINDOW_PX, STEP_PX))

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        height, width = (int(side) for side in x.shape[-2:])
        maps = []
        for scale in self.scales:
            size = [max(1, round(side * scale / STEP_PX)) * STEP_PX for side in (height, width)]
            maps.append(resized(self.centred(resized(x, size)), [height, width]))
        surest = torch.stack(maps).amax(0)
        return [surest, *maps] if self.training else surest
