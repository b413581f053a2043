"""The segmenter that ships: PNS+ (Ji et al., "Video Polyp Segmentation", 2022) made causal, light and streaming.

Ours differs from the paper in the encoder (EfficientNet-Lite instead of Res2Net-50), in the decoder (a small feature
pyramid with a head at stride 4 instead of stride 8) and in what the self-attention over time carries: the logits of
earlier frames instead of their features, so that with an empty state the network is a plain image segmenter. What was
found of late is also kept as evidence, which holds an outline through frames that miss it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from polypscope.models.depthwise import DepthwiseConv2d
from polypscope.models.efficientnet_lite import MEAN, STD, EfficientNetLite

PAST = 3  # frames that are remembered besides the anchor


def _resize(x: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    return nn.functional.interpolate(x, size=tuple(size), mode="bilinear", align_corners=False)


def _pointwise(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))


class Separable(nn.Module):
    """Depth-wise kxk then 1x1, each with batch norm; the residual keeps the gradient path short."""

    def __init__(self, channels: int, kernel: int = 3) -> None:
        super().__init__()
        self.depthwise = nn.Sequential(DepthwiseConv2d(channels, kernel), nn.BatchNorm2d(channels))
        self.pointwise = _pointwise(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.pointwise(torch.relu(self.depthwise(x))))


class Context(nn.Module):
    """Stride-32 features seen at three extents: local, the whole image, and in between."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.local = _pointwise(inputs, outputs)
        self.whole = nn.Sequential(nn.Conv2d(inputs, outputs, 1), nn.ReLU())
        self.mix = nn.Sequential(Separable(outputs, 5), Separable(outputs, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(torch.relu(self.local(x) + self.whole(x.mean((2, 3), keepdim=True))))


class Merge(nn.Module):
    """Coarser features upsampled onto finer ones."""

    def __init__(self, coarse: int, fine: int, outputs: int, kernel: int = 3) -> None:
        super().__init__()
        self.coarse = _pointwise(coarse, outputs)
        self.fine = _pointwise(fine, outputs)
        self.mix = nn.Sequential(Separable(outputs, kernel), Separable(outputs, kernel))

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        return self.mix(torch.relu(self.fine(fine) + _resize(self.coarse(coarse), fine.shape[-2:])))


class Memory(nn.Module):
    """Logits of the anchor and the last frames, moved to where their features match, weighed against this frame's own.

    The attention of the NS block with the softmax of the paper's equations and a window of 3x3: queries and keys are
    the normalised stride-16 features, the values are the earlier frames' logits. A place counts the less, the less its
    best match resembles it, so that a memory of another scene counts for nothing. What is learnt (by
    `training.memory`, on the frozen rest) is how much each remembered frame counts, and a small correction of their
    mean; with an empty state both vanish and the network is the image segmenter.
    """

    def __init__(self, slots: int = PAST + 1, width: int = 16) -> None:
        super().__init__()
        self.log_weight = nn.Parameter(torch.full((slots,), 0.8).log())
        self.log_sharpness = nn.Parameter(torch.tensor(30.0).log())
        self.log_refusal = nn.Parameter(torch.tensor(20.0).log())
        self.correct = nn.Sequential(
            nn.Conv2d(2 + 2 * slots, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 1, 3, padding=1),
        )  # fmt: skip
        nn.init.zeros_(self.correct[-1].weight)
        nn.init.zeros_(self.correct[-1].bias)

    def key(self, high: Tensor) -> Tensor:
        """What is remembered of a frame's features: their directions."""
        return nn.functional.normalize(high, dim=1)

    def forward(self, now: Tensor, own: Tensor, keys: Tensor, beliefs: Tensor) -> Tensor:
        """now (B, C, h, w), own (B, 1, H, W) logits; keys (B, T, C, h, w), beliefs (B, T, 1, H, W) → (B, 1, H, W)."""
        frames, height, width = (int(keys.shape[axis]) for axis in (1, 3, 4))
        size = (int(own.shape[-2]), int(own.shape[-1]))
        weight, sharpness, refusal = self.log_weight.exp(), self.log_sharpness.exp(), self.log_refusal.exp()
        alike = _alike(now, keys)
        # The lower limit keeps the power's gradient finite; to the power of the refusal it is nothing.
        best = alike.amax(2, keepdim=True)
        trust = torch.where(best > 0, best.clamp(1e-3, 1) ** refusal, torch.zeros_like(best))
        trust = weight[:, None, None, None] * trust
        fine = _resize(torch.cat([(sharpness * alike).softmax(2), trust], 2).flatten(1, 2), size)
        fine = fine.unflatten(1, (frames, MOVES + 1))
        share, trust = fine[:, :, :MOVES], fine[:, :, MOVES]
        moved = (share * _moved(beliefs[:, :, 0], (size[0] // height, size[1] // width))).sum(2)
        weights = 1 + trust.sum(1, keepdim=True)
        mean = (own + (trust * moved).sum(1, keepdim=True)) / weights
        told = trust * (moved - own)
        corrected = self.correct(torch.cat([0.25 * torch.cat([own, mean, told], 1), trust], 1))
        return mean + (1 - 1 / weights) * corrected


MOVES = 9  # a place and its eight neighbours, row by row


def _alike(now: Tensor, keys: Tensor) -> Tensor:
    """Each place of now (B, C, h, w) times the nine places around it in keys (B, T, C, h, w): (B, T, 9, h, w).

    A row times the row above, beside or below it is one product of matrices, of which a band along the diagonal is
    wanted: cheaper than nine shifted copies of all the keys. Beyond the edge there are zeros.
    """
    height, width = int(now.shape[2]), int(now.shape[3])
    queries, rows = now.permute(0, 2, 3, 1)[:, None], keys.permute(0, 1, 3, 2, 4)
    bands = []
    for down in (-1, 0, 1):
        above, below = max(0, -down), max(0, down)
        products = queries[:, :, above : height - below] @ rows[:, :, below : height - above]
        # Cut into rows that are one longer, with a zero in front, each begins with (x, x - 1), (x, x), (x, x + 1).
        skewed = nn.functional.pad(products.flatten(-2), (1, width - 1)).unflatten(-1, (width, width + 1))
        bands.append(nn.functional.pad(skewed, (0, 2 - min(width, 2), 0, 0, above, below))[..., :3])
    return torch.cat(bands, -1).permute(0, 1, 4, 2, 3)


def _moved(maps: Tensor, reach: tuple[int, int]) -> Tensor:
    """Maps (B, T, H, W), edges repeated, seen from nine places `reach` apart: (B, T, 9, H, W)."""
    frames = int(maps.shape[1])
    wide = nn.functional.pad(maps, (reach[1], reach[1], reach[0], reach[0]), mode="replicate")
    taps = torch.eye(MOVES, dtype=maps.dtype).reshape(MOVES, 1, 3, 3).repeat(frames, 1, 1, 1)
    return nn.functional.conv2d(wide, taps, dilation=reach, groups=frames).unflatten(1, (frames, MOVES))


KEPT, LIMIT = 0.95, 4.0  # how much evidence outlives a frame; its upper bound, in votes
LEAST, HELD = 0.5, 0.04  # votes that are worth holding; logit of an outline that only evidence draws


def held(logits: Tensor, own: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
    """Logits in which a frame that shows nothing keeps what earlier ones have shown, and the evidence after it.

    A mean over frames cannot bring back what one of them misses outright, and that is how video fails: a polyp that is
    plain in ten frames is gone in the next two. So every place gathers evidence, one vote a frame. Where a frame shows
    nothing at all, what had evidence stays outlined until the votes against it have used that up, at a probability of
    0.51: no alarm, and nothing to measure. A frame with a finding of its own is left as it is. Evidence does not move
    with the picture, since it lasts for a few frames only; moved by the matching, it was tried and gained less.

    All maps (B, 1, H, W); `own` are the frame's logits before any memory, `evidence` is that up to the frame before.
    """
    left = KEPT * evidence
    votes = left + own.clamp(-1, 1)
    blank = own.amax((2, 3), keepdim=True) <= 0
    # As steep on both sides of the outline, so that it lies where the votes are even and not inside of that.
    drawn = torch.maximum(logits, HELD * votes.clamp(max=1))
    return torch.where(blank & (left > LEAST), drawn, logits), votes.clamp(0, LIMIT)


class Presence(nn.Module):
    """Is there a polyp in this frame at all? A frame that looks empty has its probabilities capped at 0.6.

    The decoder judges place by place and is easily drawn to a fold; this looks at the whole frame. The cap keeps the
    outline at 0.5 as it is, but holds an unlikely frame below the shipped threshold of 0.8, so that it raises no alarm.
    """

    CAP, MARGIN, SLOPE = 0.4, 1.5, 4.0  # logit of the cap; how sure a frame must be to escape it, and how fast

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.look = nn.Conv2d(channels, 64, 1)
        self.judge = nn.Sequential(nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 1))
        nn.init.zeros_(self.judge[2].weight)
        nn.init.constant_(self.judge[2].bias, 10.0)  # an untrained one is sure of every frame, and changes nothing

    def forward(self, high: Tensor) -> Tensor:
        """Stride-16 features (B, C, h, w) → logit (B, 1)."""
        seen = torch.relu(self.look(high))
        return self.judge(torch.cat([seen.amax((2, 3)), seen.mean((2, 3))], 1))

    def cap(self, logits: Tensor, high: Tensor) -> Tensor:
        """Logits (B, 1, H, W), capped where the frame looks empty."""
        limit = self.CAP + self.SLOPE * torch.relu(self(high) - self.MARGIN)
        return torch.minimum(logits, limit[:, :, None, None])


class State(NamedTuple):
    """What is remembered between frames; zeros mean "nothing yet"."""

    memory: Tensor  # (B, PAST, W, h, w): keys of the last frames, newest first
    beliefs: Tensor  # (B, PAST + 1, 1, H, W): their logits before any memory, then the anchor's
    anchor: Tensor  # (B, W, h, w): the anchor's key
    evidence: Tensor  # (B, 1, H, W): how many frames of late spoke for a polyp here
    count: Tensor  # (B, 1, 1, 1): frames since the anchor


class StreamSegmenter(nn.Module):
    """One RGB frame (B, 3, H, W), normalised, to polyp logits (B, 1, H, W); sides are multiples of 32.

    Parameters
    ----------
    encoder : variant of EfficientNet-Lite.
    """

    def __init__(self, encoder: str = "lite1") -> None:
        super().__init__()
        self.encoder = EfficientNetLite(encoder)
        _, c4, c8, c16, c32 = self.encoder.channels
        self.context = Context(c32, 96)
        self.merge16 = Merge(96, c16, 96, 5)
        self.merge8 = Merge(96, c8, 48)
        self.merge4 = Merge(48, c4, 32)
        self.head16 = nn.Conv2d(96, 1, 1)
        self.head8 = nn.Conv2d(48, 1, 1)
        self.head4 = nn.Conv2d(32, 1, 1)
        # Not part of the image recipe: `training.joint` teaches the presence head, `training.memory` the memory.
        self.presence = Presence(96).requires_grad_(False)
        self.memory = Memory().requires_grad_(False)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features of one frame: stride 4, stride 8, and the stride-16 map that the memory works on."""
        _, f4, f8, f16, f32 = self.encoder(x)
        return f4, f8, self.merge16(self.context(f32), f16)

    def decode(self, f4: Tensor, f8: Tensor, high: Tensor) -> list[Tensor]:
        """Logits at strides 4, 8 and 16, finest first."""
        m8 = self.merge8(high, f8)
        m4 = self.merge4(m8, f4)
        logits = self.head4(m4)
        if not self.training:
            # Averaging 3x3 removes specks of a few pixels, which would each count as a finding.
            logits = nn.functional.avg_pool2d(logits, 3, 1, 1, count_include_pad=False)
        return [logits, self.head8(m8), self.head16(high)]

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        """Single pictures: logits (B, 1, H, W); in training, the maps at strides 4, 8 and 16 for deep supervision."""
        features = self.encode(x)
        logits = self.decode(*features)
        return logits if self.training else _resize(self.presence.cap(logits[0], features[2]), x.shape[-2:])

    def empty_state(self, batch: int, height: int, width: int) -> State:
        """Nothing seen yet, for inputs of height × width pixels."""
        keys = 96
        h, w = height // 16, width // 16
        return State(
            torch.zeros(batch, PAST, keys, h, w),
            torch.zeros(batch, PAST + 1, 1, height // 4, width // 4),
            torch.zeros(batch, keys, h, w),
            torch.zeros(batch, 1, height // 4, width // 4),
            torch.zeros(batch, 1, 1, 1),
        )

    def step(self, features: tuple[Tensor, Tensor, Tensor], state: State) -> tuple[Tensor, State]:
        """Logits (B, 1, H/4, W/4) of one encoded frame given what was seen before it, and what to remember after it."""
        f4, f8, high = features
        now = self.memory.key(high)
        own = self.decode(f4, f8, high)[0]
        keys = torch.cat([state.memory, state.anchor[:, None]], 1)
        logits, evidence = held(self.memory(now, own, keys, state.beliefs), own, state.evidence)
        known = state.count > 0
        anchor = torch.where(known, state.anchor, now)
        first = torch.where(known, state.beliefs[:, -1], own)
        memory = torch.cat([now[:, None], state.memory[:, :-1]], 1)
        beliefs = torch.cat([own[:, None], state.beliefs[:, : PAST - 1], first[:, None]], 1)
        return self.presence.cap(logits, high), State(memory, beliefs, anchor, evidence, state.count + 1)

    def window(self, frames: Tensor) -> Tensor:
        """Logits (B, 1, H, W) of the last of several frames (B, n, 3, H, W), the first of which is the anchor.

        This is what streaming computes for that frame; the two are tested to be equal.
        """
        batch, count = frames.shape[:2]
        f4, f8, high = self.encode(frames.flatten(0, 1))
        keys = self.memory.key(high).unflatten(0, (batch, count))
        own = self.decode(f4, f8, high)[0].unflatten(0, (batch, count))
        past = slice(max(0, count - 1 - PAST), count - 1)
        known = torch.cat([_padded(keys[:, past].flip(1)), keys[:, :1]], 1)
        beliefs = torch.cat([_padded(own[:, past].flip(1)), own[:, :1]], 1)
        logits = self.memory(keys[:, -1], own[:, -1], known, beliefs) if count > 1 else own[:, 0]
        evidence = torch.zeros_like(own[:, 0])
        for before in range(count - 1):
            _, evidence = held(own[:, before], own[:, before], evidence)
        logits, _ = held(logits, own[:, -1], evidence)
        last = high.unflatten(0, (batch, count))[:, -1]
        return _resize(self.presence.cap(logits, last), frames.shape[-2:])


def _padded(past: Tensor) -> Tensor:
    """(B, n, C, h, w) with zeros for frames that there were not."""
    return nn.functional.pad(past, (0, 0, 0, 0, 0, 0, 0, PAST - past.shape[1]))


class StreamGraph(nn.Module):
    """The segmenter as it is exported: pixels in, probability out, the state and the shared features in the open."""

    def __init__(self, model: StreamSegmenter) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor, *remembered: Tensor) -> tuple[Tensor, ...]:
        """image (B, H, W, 3) uint8 and a state → probability (B, 1, H, W), the next state, features."""
        x = (image.permute(0, 3, 1, 2).float() - MEAN) / STD
        features = self.model.encode(x)
        logits, state = self.model.step(features, State(*remembered))
        probability = _resize(logits, x.shape[-2:]).sigmoid()
        return (probability, *state, *features)
