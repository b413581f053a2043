"""Training what comes after the segmenter, on its frozen encoder: the memory and the depth head, in one loop.

Every simulated clip is encoded once and teaches both; clips made from stills teach the memory alone. The image part
is not touched, so that single pictures are segmented as before.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from polypscope.models.depth_head import DepthHead
from polypscope.models.pns_plus_stream import PAST, LearnedMemory, StreamSegmenter
from polypscope.records.errors import UsageError
from polypscope.training.augment import AugmentSpec, augment
from polypscope.training.clips import SimulatedClips, clip_from_still, spoil
from polypscope.training.config import HeadsConfig
from polypscope.training.data import decoded
from polypscope.training.export import load_trained
from polypscope.training.loop import gather
from polypscope.training.losses import boundary_weight, depth_loss, structure_loss
from polypscope.training.presence import train_presence
from polypscope.training.simulated import render_shards


@dataclass(frozen=True)
class HeadsSpec:
    """Settings of the run."""

    steps: int = 1500
    clips: int = 4
    frames: int = 5
    size: int = 352
    rate: float = 1.5e-3
    simulated: float = 0.6
    seed: int = 3
    workers: int = 1
    threads: int = 2


class Clips(Dataset[tuple[Tensor, Tensor, Tensor, Tensor]]):
    """Clip number n, a pure function of (seed, n): rgb, mask, ray_mm (NaN for stills), rays."""

    def __init__(self, images: np.ndarray, masks: np.ndarray, folder: Path, spec: HeadsSpec) -> None:
        self.images, self.masks, self.spec = images, masks, spec
        self.simulated = SimulatedClips(folder)
        self.augment = AugmentSpec(scale=(0.7, 1.5), degrade=0.1, highlights=0.1, overlay=0.1, paste=0.3)

    def __len__(self) -> int:
        return self.spec.steps * self.spec.clips

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cv2.setNumThreads(0)
        spec = self.spec
        rng = np.random.default_rng((spec.seed, index))
        if rng.random() < spec.simulated:
            rgb, mask, ray, rays = self.simulated.draw(rng)
            rgb = np.stack([spoil(np.ascontiguousarray(frame), rng, 0.2) for frame in rgb])
        else:
            item, other = rng.integers(len(self.images), size=2)
            donor = (np.asarray(self.images[other]), np.asarray(self.masks[other]))
            still, truth = augment(
                np.asarray(self.images[item]), np.asarray(self.masks[item]), spec.size, rng, self.augment, donor
            )
            rgb, mask = clip_from_still(still, truth, spec.frames, rng, self.augment)
            ray = np.full((spec.frames, spec.size // 4, spec.size // 4), np.nan, np.float32)
            rays = np.zeros((22, 22, 3), np.float32)
            rays[..., 2] = 1
        return torch.from_numpy(rgb), torch.from_numpy(mask), torch.from_numpy(ray), torch.from_numpy(rays)


def memory_loss(model: StreamSegmenter, features: tuple[Tensor, ...], mask: Tensor, target: int) -> Tensor:
    """Loss of frame `target` (from 1 on) given those before it.

    features: (B, T, C, h, w) at three strides; mask: (B, T, S, S) uint8. Only this frame is decoded: its window is all
    that streaming would remember of the clip.
    """
    f4, f8, high = (level.float() for level in features)
    squeezed = model.memory.squeeze(high[:, : target + 1].flatten(0, 1)).unflatten(0, (len(mask), target + 1))
    past = squeezed[:, max(0, target - PAST) : target].flip(1)
    past = nn.functional.pad(past, (0, 0, 0, 0, 0, 0, 0, PAST - past.shape[1]))
    told = model.memory(squeezed[:, target], past, squeezed[:, 0])
    levels = model.decode(f4[:, target], f8[:, target], high[:, target] + told)
    truth = nn.functional.interpolate(mask[:, target : target + 1].float() / 255, scale_factor=0.5, mode="area")
    guess = nn.functional.interpolate(levels[0], size=truth.shape[-2:], mode="bilinear")
    return structure_loss(guess, truth, boundary_weight(truth))


def train_heads(
    model: StreamSegmenter,
    images: np.ndarray,
    masks: np.ndarray,
    simulated: Path,
    out: Path,
    spec: HeadsSpec,
    say: Callable[[str], None] = print,
) -> Path:
    """Train memory and depth head; writes `heads.pt` (resumable, every 100 steps) into `out` and returns it."""
    torch.set_num_threads(spec.threads)
    torch.manual_seed(spec.seed)
    model = model.to(memory_format=torch.channels_last).eval().requires_grad_(False)
    learns = isinstance(model.memory, LearnedMemory)
    if learns:
        model.memory.requires_grad_(True)
        nn.init.normal_(model.memory.expand.weight, std=1e-3)
    channels = (model.encoder.channels[1], model.encoder.channels[2], 96)
    depth = DepthHead(channels).to(memory_format=torch.channels_last)
    parameters = [*model.memory.parameters(), *depth.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=spec.rate, weight_decay=1e-3)
    first = 0
    path = out / "heads.pt"
    out.mkdir(parents=True, exist_ok=True)
    if path.exists():
        saved = torch.load(path, weights_only=True)
        model.memory.load_state_dict(saved["memory"])
        depth.load_state_dict(saved["depth"])
        optimiser.load_state_dict(saved["optimiser"])
        first = saved["step"]
    data = Clips(images, masks, simulated, spec)
    order = range(first * spec.clips, spec.steps * spec.clips)
    loader = DataLoader(data, spec.clips, sampler=list(order), num_workers=spec.workers)
    started, recent = time.perf_counter(), []
    for step, (rgb, mask, ray_mm, rays) in enumerate(loader, start=first):
        progress = step / spec.steps
        rate = spec.rate * min(1.0, (step + 1) / 50) * (0.5 * (1 + math.cos(math.pi * progress)) + 1e-3)
        for group in optimiser.param_groups:
            group["lr"] = rate
        if not learns:  # depth alone needs no neighbours, which look alike
            rgb, mask, ray_mm = rgb[:, [0, -1]], mask[:, [0, -1]], ray_mm[:, [0, -1]]
        batch, frames = mask.shape[:2]
        x = ((rgb.flatten(0, 1).permute(0, 3, 1, 2).float() - 127) / 128).contiguous(memory_format=torch.channels_last)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            encoded = model.encode(x)
        unfolded = tuple(level.unflatten(0, (batch, frames)) for level in encoded)
        remembered = memory_loss(model, unfolded, mask, 1 + step % (frames - 1)) if learns else torch.zeros(())
        # Two frames of each simulated clip are enough for depth: neighbours look alike.
        chosen = torch.isfinite(ray_mm).flatten(1).any(1)
        measured = torch.zeros(())
        if chosen.any():
            picked = torch.tensor([0, frames - 1])
            parts = [level[chosen][:, picked].flatten(0, 1) for level in unfolded]
            view = x.unflatten(0, (batch, frames))[chosen][:, picked].flatten(0, 1)
            field = rays[chosen].permute(0, 3, 1, 2).repeat_interleave(2, 0)
            depth.train()
            with torch.autocast("cpu", torch.bfloat16):
                guess = depth(*parts, view, field)
            truth = ray_mm[chosen][:, picked].flatten(0, 1)
            measured = depth_loss(guess.float(), truth, torch.ones_like(truth))
        loss = remembered + measured
        if not loss.requires_grad:
            continue  # only stills in this batch, and a memory that has nothing to learn
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        recent.append((float(remembered.detach()), float(measured.detach())))
        if step % 25 == 0:
            mean = np.mean(recent[-25:], axis=0)
            pace = (time.perf_counter() - started) / (step - first + 1)
            say(f"step {step}/{spec.steps} memory {mean[0]:.4f} depth {mean[1]:.4f} {pace:.2f} s each")
            with (out / "heads.csv").open("a", newline="") as file:
                csv.writer(file).writerow([step, *mean.round(5)])
        if (step + 1) % 100 == 0 or step + 1 == spec.steps:
            state = {"memory": model.memory.state_dict(), "depth": depth.state_dict(), "step": step + 1}
            partial = path.with_suffix(".part")
            torch.save({**state, "optimiser": optimiser.state_dict(), "channels": list(channels)}, partial)
            partial.replace(path)
    return path


def run_heads(config: HeadsConfig, say: Callable[[str], None] = print) -> Path:
    """Render what is missing, train all heads, and write `weights.pt` (the whole segmenter) and `depth.pt`."""
    model, base = load_trained(config.checkpoint)
    if not isinstance(model, StreamSegmenter):
        raise UsageError(f"{config.checkpoint}: expected a pns_plus_stream, found {base.model.name}; heads need it.")
    render_shards(config.simulated, config.shards, say)
    pictures, _ = gather(config.train, say)
    images, masks = decoded(pictures, config.cache_side_px, config.cache or config.out / "cache")
    spec = HeadsSpec(
        config.steps, config.clips, rate=config.rate, simulated=config.simulated_share, seed=config.seed,
        workers=config.workers, threads=config.threads,
    )  # fmt: skip
    heads = torch.load(train_heads(model, images, masks, config.simulated, config.out, spec, say), weights_only=True)
    model.memory.load_state_dict(heads["memory"])
    train_presence(model, images, masks, say=say)
    torch.save({"model": model.state_dict(), "config": base.model_dump_json()}, config.out / "weights.pt")
    torch.save({"depth": heads["depth"], "channels": heads["channels"]}, config.out / "depth.pt")
    return config.out / "weights.pt"
