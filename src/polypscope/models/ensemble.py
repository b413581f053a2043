"""Several segmenters that look at the same single picture, as one network: for pictures that need not be quick.

Networks with other encoders, trained on their own, err in other places, so the mean of their logits errs in fewer
(Hansen and Salamon, "Neural Network Ensembles", 1990). It has no memory of earlier frames.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from polypscope.models.pns_plus_stream import StreamSegmenter, _resize
from polypscope.records.errors import UsageError


class Ensemble(nn.Module):
    """One RGB picture (B, 3, H, W), normalised, to polyp logits (B, 1, H, W); sides are multiples of 32.

    Parameters
    ----------
    encoders : variant of EfficientNet-Lite of each member.
    """

    def __init__(self, encoders: Sequence[str] = ("lite1", "lite2")) -> None:
        super().__init__()
        if len(encoders) < 2:
            raise UsageError(f"Ensemble: expected two members or more, found {len(encoders)}.")
        self.members = nn.ModuleList(StreamSegmenter(encoder) for encoder in encoders)

    @classmethod
    def of(cls, members: Sequence[StreamSegmenter]) -> Ensemble:
        """An ensemble of trained segmenters."""
        made = cls([member.encoder.variant for member in members])
        made.members = nn.ModuleList(members)
        return made

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        """Mean logits (B, 1, H, W); in training, the means at strides 4, 8 and 16 for deep supervision."""
        features = [member.encode(x) for member in self.members]
        levels = [member.decode(*seen) for member, seen in zip(self.members, features, strict=True)]
        means = [torch.stack(level).mean(0) for level in zip(*levels, strict=True)]
        if self.training:
            return means
        logits = means[0]
        for member, (_, _, high) in zip(self.members, features, strict=True):
            # To whichever member the picture looks empty: one doubt is enough to raise no alarm.
            logits = member.presence.cap(logits, high)
        return _resize(logits, x.shape[-2:])
