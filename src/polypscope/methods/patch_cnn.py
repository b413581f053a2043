"""A small convolutional network on patches, forward and backward in numpy: it needs no library to be trained.

Three convolutions and two dense layers, about 45,000 weights. A convolution is one product of matrices, of the kernel
and of all windows that it sees. Trained by Adam on batches with as many positives as negatives, each patch turned,
mirrored and shifted at random; the answer is the probability of the positive class when both are equally common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from polypscope.records.errors import RecordError

__all__ = ["PATCH", "ROOM", "PatchCnn", "backward", "draw_weights", "fit_cnn", "forward", "shapes"]

PATCH = 32  # side of what the network sees
ROOM = 36  # side of a patch that it learns from, so that it can be shifted
FILTERS = (16, 24, 32)
HIDDEN = 48
_STRIDES = (2, 1, 1)
_POOLED = (False, True, True)

Values = NDArray[np.floating]
Weights = list[Values]


def shapes(channels: int, patch: int = PATCH) -> list[tuple[int, ...]]:
    """Shapes of the weights: kernel and bias of each convolution, then of each dense layer."""
    kernels = [(5, 5, channels, FILTERS[0]), (3, 3, FILTERS[0], FILTERS[1]), (3, 3, FILTERS[1], FILTERS[2])]
    flat = (patch // 8) ** 2 * FILTERS[2]
    out: list[tuple[int, ...]] = []
    for kernel in [*kernels, (flat, HIDDEN), (HIDDEN, 1)]:
        out += [kernel, kernel[-1:]]
    return out


def draw_weights(channels: int, rng: np.random.Generator, patch: int = PATCH) -> Weights:
    """Random weights to begin with: He's for kernels, none for biases."""
    out: Weights = []
    for shape in shapes(channels, patch):
        scale = np.sqrt(2 / np.prod(shape[:-1])) if len(shape) > 1 else 0.0
        out.append((scale * rng.standard_normal(shape)).astype(np.float32))
    return out


def forward(weights: Sequence[Values], x: Values) -> tuple[Values, list[tuple[Values, ...]]]:
    """Logits (n,) of patches (n, side, side, channels), and what `backward` needs of each layer."""
    kept: list[tuple[Values, ...]] = []
    for k, (stride, pooled) in enumerate(zip(_STRIDES, _POOLED, strict=True)):
        kernel, bias = weights[2 * k], weights[2 * k + 1]
        windows = _windows(x, kernel.shape[0], stride)
        shape = x.shape
        out = windows.reshape(-1, kernel[..., 0].size) @ kernel.reshape(-1, kernel.shape[-1]) + bias
        active = np.maximum(out, 0).reshape(*windows.shape[:3], -1)
        x = _pool(active) if pooled else active
        kept.append((windows, active, x, np.array(shape)))
    flat = x.reshape(len(x), -1)
    hidden = np.maximum(flat @ weights[6] + weights[7], 0)
    kept.append((flat, hidden))
    return (hidden @ weights[8] + weights[9])[:, 0], kept


def backward(weights: Sequence[Values], kept: list[tuple[Values, ...]], slope: Values) -> Weights:
    """Gradient of every weight, from `slope` (n,), the loss's derivative by the logits."""
    flat, hidden = kept[-1]
    grads: Weights = [np.zeros(0)] * len(weights)
    out = slope[:, None]
    grads[8], grads[9] = hidden.T @ out, out.sum(axis=0)
    out = (out @ weights[8].T) * (hidden > 0)
    grads[6], grads[7] = flat.T @ out, out.sum(axis=0)
    out = (out @ weights[6].T).reshape(kept[-2][2].shape)
    for k in (2, 1, 0):
        windows, active, x, shape = kept[k]
        kernel = weights[2 * k]
        if _POOLED[k]:
            out = _unpool(active, x, out)
        rows = (out * (active > 0)).reshape(-1, kernel.shape[-1])
        grads[2 * k] = (windows.reshape(-1, kernel[..., 0].size).T @ rows).reshape(kernel.shape)
        grads[2 * k + 1] = rows.sum(axis=0)
        if k:
            into = rows @ kernel.reshape(-1, kernel.shape[-1]).T
            out = _gather(into.reshape(*active.shape[:3], *kernel.shape[:3]), shape, _STRIDES[k])
    return grads


def _windows(x: Values, size: int, stride: int) -> Values:
    """All windows of a padded batch: (n, rows, columns, size, size, channels)."""
    half = size // 2
    padded = np.pad(x, ((0, 0), (half, half), (half, half), (0, 0)))
    seen = sliding_window_view(padded, (size, size), axis=(1, 2))[:, ::stride, ::stride]
    return np.ascontiguousarray(seen.transpose(0, 1, 2, 4, 5, 3))


def _gather(windows: Values, shape: NDArray[np.int64], stride: int) -> Values:
    """The reverse of `_windows`: what falls on the same place is added up."""
    n, height, width, channels = (int(v) for v in shape)
    size = windows.shape[3]
    half = size // 2
    padded = np.zeros((n, height + 2 * half, width + 2 * half, channels), windows.dtype)
    for a in range(size):
        for b in range(size):
            padded[:, a : a + height : stride, b : b + width : stride] += windows[:, :, :, a, b]
    return padded[:, half : half + height, half : half + width]


def _pool(x: Values) -> Values:
    """The largest of every two by two."""
    return np.maximum(np.maximum(x[:, ::2, ::2], x[:, 1::2, ::2]), np.maximum(x[:, ::2, 1::2], x[:, 1::2, 1::2]))


def _unpool(x: Values, pooled: Values, slope: Values) -> Values:
    """Slopes by what went into `_pool`: the largest alone counts (all that tie, which only zeros do)."""
    out = np.zeros_like(x)
    for a in (0, 1):
        for b in (0, 1):
            out[:, a::2, b::2] = np.where(x[:, a::2, b::2] == pooled, slope, 0)
    return out


@dataclass(frozen=True, eq=False)
class PatchCnn:
    """A trained network. mean, deviation: float32 (channels,) of what it learned from."""

    weights: tuple[NDArray[np.float32], ...]
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def __post_init__(self) -> None:
        expected = shapes(len(self.mean))
        found = [w.shape for w in self.weights]
        if found != expected or self.deviation.shape != self.mean.shape or not np.all(self.deviation > 0):
            raise RecordError.of("PatchCnn", expected=f"weights {expected}, deviations above 0", found=str(found))

    def probability(self, patches: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Of patches, uint8 (n, side, side, channels), of which the middle is looked at: float32 (n,)."""
        if not len(patches):
            return np.zeros(0, np.float32)
        off = (patches.shape[1] - PATCH) // 2
        x = (patches[:, off : off + PATCH, off : off + PATCH] - self.mean) / self.deviation
        logits, _ = forward(self.weights, x)
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))), dtype=np.float32)


def fit_cnn(
    patches: NDArray[np.uint8],
    positive: NDArray[np.bool_],
    *,
    epochs: int = 8,
    batch: int = 64,
    rate: float = 2e-3,
    decay: float = 0.02,
    seed: int = 0,
) -> PatchCnn:
    """Train on patches, uint8 (n, ROOM, ROOM, channels). Fixed by the seed.

    An epoch is as many patches as there are, and there are never fewer than 80 batches; of few patches, a batch is a
    quarter. `rate` falls to 0 along half a cosine; `decay` is how much of itself a kernel loses per unit of rate.
    """
    if not positive.any() or positive.all():
        raise RecordError.of(
            "training", expected="patches with and without polyp", found=f"{int(positive.sum())} of {len(positive)}"
        )
    rng = np.random.default_rng(seed)
    mean = patches.mean(axis=(0, 1, 2), dtype=np.float64).astype(np.float32)
    deviation = np.maximum(patches.std(axis=(0, 1, 2), dtype=np.float64), 1.0).astype(np.float32)
    weights = draw_weights(patches.shape[3], rng)
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    kinds = np.flatnonzero(positive), np.flatnonzero(~positive)
    batch = min(batch, max(16, len(patches) // 4))
    steps = max(80, epochs * len(patches) // batch)
    for step in range(1, steps + 1):
        rows = np.concatenate([rng.choice(kind, batch // 2) for kind in kinds])
        answer = positive[rows].astype(np.float32)
        x = (_shaken(patches[rows], rng) - mean) / deviation
        logits, kept = forward(weights, x)
        slope = (1 / (1 + np.exp(-np.clip(logits, -30, 30))) - answer) / np.float32(batch)
        now = rate * 0.5 * (1 + np.cos(np.pi * step / steps))
        for w, g, m, v in zip(weights, backward(weights, kept, slope), first, second, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            lift = (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
            w -= now * lift
            if w.ndim > 1:
                w *= np.float32(1 - now * decay)
    return PatchCnn(tuple(weights), mean, deviation)


def _shaken(patches: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.float32]:
    """Patches cut out at random, mirrored, turned by right angles, and a little brighter or darker."""
    out = np.empty((len(patches), PATCH, PATCH, patches.shape[3]), np.float32)
    room = patches.shape[1] - PATCH + 1
    for i, patch in enumerate(patches):
        y, x = rng.integers(0, room, 2)
        cut = np.rot90(patch[y : y + PATCH, x : x + PATCH], int(rng.integers(4)))
        out[i] = cut[:, ::-1] if rng.integers(2) else cut
    return out * rng.uniform(0.85, 1.15, (len(patches), 1, 1, 1)).astype(np.float32)
