"""Training the presence head: frames and crops with a polyp against frames and crops without, on frozen features.

Real frames without a polyp are rare (121 of 2,349 here), so most negatives are parts of positive frames that show none.
Positives are cropped by the same rule, so that the zoom of a crop says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import cv2
import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor, nn

from polypscope.models.pns_plus_stream import StreamSegmenter
from polypscope.training.augment import Image, colour, part
from polypscope.training.loop import normalise


def examples(
    images: np.ndarray, masks: np.ndarray, size: int, rng: Generator, count: int
) -> tuple[list[Image], list[bool]]:
    """About `count` pictures of network size, half with a polyp; whole frames and crops alternate."""
    pictures: list[Image] = []
    labels: list[bool] = []
    has = masks.reshape(len(masks), -1).max(1) > 127
    empty, full = np.flatnonzero(~has), np.flatnonzero(has)
    for number in range(count):
        positive = number % 2 == 0
        whole = rng.random() < 0.5
        if positive or not whole or not len(empty):
            index = int(rng.choice(full))
            picture = np.asarray(images[index])
            cut: Image | None = (
                picture if positive and whole else part(picture, np.asarray(masks[index]), positive, rng)
            )
        else:
            index = int(rng.choice(empty))
            cut = np.asarray(images[index])
            if rng.random() < 0.5:
                cut = part(cut, np.asarray(masks[index]), False, rng)
        if cut is None:
            continue
        cut = cv2.resize(np.ascontiguousarray(cut), (size, size), interpolation=cv2.INTER_AREA)
        cut = cut[:, ::-1] if rng.random() < 0.5 else cut
        cut = cut[::-1] if rng.random() < 0.5 else cut
        pictures.append(colour(np.ascontiguousarray(cut), rng, 0.4))
        labels.append(positive)
    return pictures, labels


@torch.no_grad()
def features_of(model: StreamSegmenter, pictures: list[Image], batch: int = 16) -> Tensor:
    """Stride-16 features (N, C, h, w), float16."""
    found = []
    for start in range(0, len(pictures), batch):
        rgb = torch.from_numpy(np.stack(pictures[start : start + batch])).permute(0, 3, 1, 2)
        with torch.autocast("cpu", torch.bfloat16):
            found.append(model.encode(normalise(rgb))[2].half())
    return torch.cat(found)


def train_presence(
    model: StreamSegmenter,
    images: np.ndarray,
    masks: np.ndarray,
    size: int = 352,
    count: int = 4000,
    epochs: int = 12,
    caution: float = 2.0,
    seed: int = 4,
    say: Callable[[str], None] = print,
) -> None:
    """Train `model.presence` in place; nothing else of the model changes.

    Parameters
    ----------
    caution : weight of pictures with a polyp; a larger value misses fewer polyps and alarms more often.
    """
    model.eval().to(memory_format=torch.channels_last)
    pictures, labels = examples(images, masks, size, np.random.default_rng(seed), count)
    say(f"{len(pictures)} pictures, {sum(labels)} with a polyp")
    features, truth = features_of(model, pictures), torch.tensor(labels, dtype=torch.float32)
    head = model.presence.requires_grad_(True)
    torch.manual_seed(seed)
    nn.init.normal_(head.judge[2].weight, std=0.1)
    nn.init.zeros_(head.judge[2].bias)
    optimiser = torch.optim.AdamW(head.parameters(), lr=2e-3, weight_decay=0.05)
    for epoch in range(epochs):
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * 0.5 * (1 + math.cos(math.pi * epoch / epochs))
        order, losses = torch.randperm(len(truth)), []
        for start in range(0, len(order) - 31, 32):
            chosen = order[start : start + 32]
            logit = head(features[chosen].float())[:, 0]
            weight = torch.where(truth[chosen] > 0, caution, 1.0)
            loss = nn.functional.binary_cross_entropy_with_logits(logit, truth[chosen], weight)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        say(f"presence epoch {epoch}: loss {np.mean(losses):.4f}")
    head.requires_grad_(False)
