"""Training the memory on the frozen rest: short clips, simulated and made from stills, of which the last frame counts.

Frames of a clip are spoilt one by one (blur, highlights, exposure), because that is what a memory is for. The image
part is not touched, so that single pictures are segmented as before.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from polypscope.models.pns_plus_stream import PAST, StreamSegmenter
from polypscope.records.errors import UsageError
from polypscope.runtime.allocation import keep_pages
from polypscope.training.augment import AugmentSpec, augment
from polypscope.training.clips import clip_from_still, simulated_clip
from polypscope.training.config import MemoryConfig
from polypscope.training.data import decoded
from polypscope.training.export import load_trained
from polypscope.training.loop import gather, pace, save_state
from polypscope.training.losses import boundary_weight, structure_loss
from polypscope.training.precision import reduced
from polypscope.training.simulated import render_shards, shard_paths

FRAMES = PAST + 1
SIZE = 352


class Clips(Dataset[tuple[Tensor, Tensor]]):
    """Clip number n, a pure function of (seed, n): rgb (T, S, S, 3) and mask (T, S, S), both uint8."""

    def __init__(self, images: np.ndarray, masks: np.ndarray, config: MemoryConfig) -> None:
        self.images, self.masks, self.config = images, masks, config
        self.paths = shard_paths(config.simulated)
        self.augment = AugmentSpec(scale=(0.7, 1.5), degrade=0.1, highlights=0.1, overlay=0.1, paste=0.3)

    def __len__(self) -> int:
        return self.config.steps * self.config.clips

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        cv2.setNumThreads(0)
        rng = np.random.default_rng((self.config.seed, index))
        if rng.random() < self.config.simulated_share:
            rgb, mask = simulated_clip(self.paths[rng.integers(len(self.paths))], rng)
        else:
            item, other = rng.integers(len(self.images), size=2)
            still, donor = (
                (np.asarray(self.images[chosen]), np.asarray(self.masks[chosen])) for chosen in (item, other)
            )
            rgb, mask = clip_from_still(*augment(*still, SIZE, rng, self.augment, donor), FRAMES, rng)
        return torch.from_numpy(rgb), torch.from_numpy(mask)


def clip_loss(model: StreamSegmenter, rgb: Tensor, mask: Tensor, target: int, anchored: bool) -> tuple[Tensor, float]:
    """Loss of frame `target` given those before it, and what it is without a memory.

    rgb (B, T, S, S, 3) and mask (B, T, S, S), uint8. An anchor that is missing teaches the network not to need it: in a
    long video it is of another place.
    """
    batch = len(rgb)
    x = (rgb[:, : target + 1].flatten(0, 1).permute(0, 3, 1, 2).float() - 127) / 128
    with torch.no_grad(), reduced():
        features = model.encode(x.contiguous(memory_format=torch.channels_last))
        logits = model.decode(*features)[0]
    own = logits.float().unflatten(0, (batch, target + 1))
    keys = model.memory.key(features[2].float()).unflatten(0, (batch, target + 1))
    slots = [*range(target - 1, -1, -1)][:PAST]
    empty = [torch.zeros_like(keys[:, 0])] * (PAST - len(slots))
    silent = [torch.zeros_like(own[:, 0])] * (PAST - len(slots))
    known = torch.stack([*(keys[:, t] for t in slots), *empty, keys[:, 0] * float(anchored)], 1)
    beliefs = torch.stack([*(own[:, t] for t in slots), *silent, own[:, 0]], 1)
    told = model.memory(keys[:, target], own[:, target], known, beliefs)
    truth = nn.functional.interpolate(mask[:, target : target + 1].float() / 255, scale_factor=0.5, mode="area")
    weight = boundary_weight(truth)

    def loss(guess: Tensor) -> Tensor:
        return structure_loss(nn.functional.interpolate(guess, size=truth.shape[-2:], mode="bilinear"), truth, weight)

    with torch.no_grad():
        alone = float(loss(own[:, target]))
    return loss(told), alone


def train_memory(config: MemoryConfig, say: Callable[[str], None] = print) -> Path:
    """Render what is missing, train the memory, and write `weights.pt`, the whole segmenter."""
    model, base = load_trained(config.start)
    if not isinstance(model, StreamSegmenter):
        raise UsageError(f"{config.start}: expected a pns_plus_stream, found {base.model.name}; a memory needs it.")
    render_shards(config.simulated, range(config.shards), say)
    pictures, _ = gather(config.train)
    images, masks = decoded(pictures, config.cache_side_px, config.cache or config.out / "cache")
    keep_pages()
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    model = model.to(memory_format=torch.channels_last).eval().requires_grad_(False)
    parameters = list(model.memory.requires_grad_(True).parameters())
    optimiser = torch.optim.AdamW(parameters, lr=config.rate, weight_decay=1e-4)
    config.out.mkdir(parents=True, exist_ok=True)
    last, first = config.out / "last.pt", 0
    if last.exists():
        saved = torch.load(last, weights_only=True)
        model.memory.load_state_dict(saved["memory"])
        optimiser.load_state_dict(saved["optimiser"])
        first = saved["step"]
    data = Clips(images, masks, config)
    order = list(range(first * config.clips, config.steps * config.clips))
    loader = DataLoader(data, config.clips, sampler=order, num_workers=config.workers)
    started, recent = time.perf_counter(), []
    for step, (rgb, mask) in enumerate(loader, start=first):
        rate = config.rate * min(1.0, (step + 1) / 30) * (0.5 * (1 + math.cos(math.pi * step / config.steps)) + 1e-3)
        for group in optimiser.param_groups:
            group["lr"] = rate
        # Mostly the last frame, which has the whole window; now and then one with a shorter past.
        target = PAST if step % 3 else 1 + step // 3 % PAST
        loss, alone = clip_loss(model, rgb, mask, target, anchored=step % 4 != 0)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        recent.append((float(loss.detach()), alone))
        if (step + 1) % 25 == 0 or step + 1 == config.steps:
            mean = np.mean(recent[-25:], axis=0)
            told = pace(started, step - first + 1, config.steps - step - 1)
            say(f"step {step + 1}/{config.steps} loss {mean[0]:.4f}, without memory {mean[1]:.4f}, {told}")
            with (config.out / "log.csv").open("a", newline="") as file:
                csv.writer(file).writerow([step + 1, *mean.round(5)])
            state = {"memory": model.memory.state_dict(), "optimiser": optimiser.state_dict(), "step": step + 1}
            save_state(state, last)
    with torch.no_grad():
        model.memory.log_weight += math.log(config.trust)
    weights = config.out / "weights.pt"
    save_state({"model": model.state_dict(), "config": base.model_dump_json()}, weights)
    return weights
