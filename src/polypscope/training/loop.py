"""The training loop: visible, resumable, and the same on one process or under `torchrun`.

An epoch is a pure function of (weights, optimiser state, seed, epoch number), and a checkpoint is written after every
epoch, so that a run which was stopped and resumed ends with the weights of one that was not.
"""

from __future__ import annotations

import copy
import csv
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from polypscope.models.efficientnet_lite import imagenet_state
from polypscope.models.registry import MODELS, create
from polypscope.records.errors import UsageError
from polypscope.training.config import Source, TrainConfig
from polypscope.training.data import Batches, Pair, Stills, decoded, list_pairs, read_mask, read_rgb, read_stems
from polypscope.training.losses import deep_supervision
from polypscope.training.pictures import contact_sheet
from polypscope.training.windows import Windows, list_windows


@dataclass
class EpochLog:
    """One row of `log.csv`."""

    epoch: int
    loss: float
    rate: float
    seconds: float
    scores: dict[str, float]


def train(config: TrainConfig, say: Callable[[str], None] = print) -> Path:
    """Run or resume the training that `config` describes; returns the file with the averaged weights."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    config.out.mkdir(parents=True, exist_ok=True)
    data, weights = open_data(config)
    model = build(config)
    average = copy.deepcopy(model).eval()
    optimiser = make_optimiser(model, config)
    sampler = Batches(weights, config.optimiser.batch, config.sizes, config.seed, config.length, rank, world)
    total = config.optimiser.epochs * len(sampler)
    first, step = 0, 0
    last = config.out / "last.pt"
    if last.exists():
        saved = torch.load(last, map_location="cpu", weights_only=True)
        model.load_state_dict(saved["model"])
        average.load_state_dict(saved["average"])
        optimiser.load_state_dict(saved["optimiser"])
        first, step = saved["epoch"] + 1, saved["step"]
        say(f"resuming after epoch {saved['epoch']}")
    else:
        _write_log_header(config)
    runner = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    for epoch in range(first, config.optimiser.epochs):
        sampler.epoch = epoch
        started, losses = time.perf_counter(), []
        # Workers are started anew each epoch so that they see this epoch's draws and nothing of the last one's.
        loader = DataLoader(
            data,
            batch_sampler=sampler,
            num_workers=config.workers,
            prefetch_factor=4 if config.workers else None,
        )
        runner.train()
        for batch_index, (rgb, mask) in enumerate(loader):
            rate = schedule(step / total, config)
            for group in optimiser.param_groups:
                group["lr"] = rate * group["relative"]
            loss = training_step(runner, rgb, mask, config)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            if config.optimiser.clamp is not None:
                nn.utils.clip_grad_value_(model.parameters(), config.optimiser.clamp)
            else:
                nn.utils.clip_grad_norm_(model.parameters(), config.optimiser.clip)
            optimiser.step()
            step += 1
            update_average(average, model, min(config.optimiser.ema, (1 + step) / (10 + step)))
            losses.append(float(loss.detach()))
            if rank == 0 and batch_index % 20 == 0:
                pace = (time.perf_counter() - started) / (batch_index + 1)
                recent = np.mean(losses[-20:])
                say(f"epoch {epoch} batch {batch_index}/{len(sampler)} loss {recent:.4f} {pace:.2f} s each")
        if rank == 0:
            scores = validate(average, config)
            row = EpochLog(epoch, float(np.mean(losses)), rate, time.perf_counter() - started, scores)
            _append_log(config, row)
            say(f"epoch {epoch} {asdict(row)}")
            _draw(average, config, epoch)
            state = {
                "model": model.state_dict(),
                "average": average.state_dict(),
                "optimiser": optimiser.state_dict(),
                "epoch": epoch,
                "step": step,
                "config": config.model_dump_json(),
            }
            _save(state, last)
    final = config.out / "weights.pt"
    if rank == 0:
        _save({"model": average.state_dict(), "config": config.model_dump_json()}, final)
    return final


def open_data(config: TrainConfig) -> tuple[Dataset[tuple[Tensor, Tensor]], np.ndarray]:
    """What the recipe trains on, stills or windows, and the weight of each item."""
    if config.window is not None:
        windows, shares = [], []
        for source in config.train:
            found = list_windows(source, config.window)
            windows += found
            shares += [source.weight] * len(found)
        return Windows(windows, config.window_size), np.array(shares)
    pairs, weights = gather(config.train)
    images, masks = decoded(pairs, config.cache_side_px, config.cache or config.out / "cache")
    return Stills(images, masks, config.augment), weights


def build(config: TrainConfig) -> nn.Module:
    """The model of the recipe, channels last (twice as fast on a CPU), from ImageNet weights if asked."""
    model = create(config.model.name, **config.model.arguments)
    if config.model.imagenet and hasattr(model, "encoder") and hasattr(model.encoder, "variant"):
        model.encoder.load_state_dict(imagenet_state(model.encoder.variant), strict=False)
    if MODELS[config.model.name].clip != (config.window is not None):
        raise UsageError(f"Recipe: expected `window` for a network that takes clips only, found {config.model.name}.")
    return model.to(memory_format=torch.channels_last)


def make_optimiser(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW; the encoder learns more slowly, and norms and biases are not decayed."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((name.startswith("encoder."), parameter.ndim > 1), []).append(parameter)
    settings = config.optimiser
    algorithm = torch.optim.AdamW if settings.algorithm == "adamw" else torch.optim.Adam
    return algorithm(
        [
            {
                "params": parameters,
                "relative": settings.encoder_rate if in_encoder else 1.0,
                "weight_decay": settings.weight_decay if decays else 0.0,
            }
            for (in_encoder, decays), parameters in groups.items()
        ],
        lr=settings.rate,
    )


def schedule(progress: float, config: TrainConfig) -> float:
    """Learning rate at `progress` in [0, 1) of the run."""
    settings = config.optimiser
    if settings.schedule == "constant":
        return settings.rate
    if progress < settings.warm_up:
        return settings.rate * (0.04 + 0.96 * progress / settings.warm_up)
    falling = (progress - settings.warm_up) / (1 - settings.warm_up)
    floor = 1e-3 if settings.schedule == "one-cycle" else 0.0
    return settings.rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * falling)))


def training_step(model: nn.Module, rgb: Tensor, mask: Tensor, config: TrainConfig) -> Tensor:
    """Loss of one batch: rgb (B, 3, S, S) and mask (B, 1, S, S), or windows of them; both uint8."""
    x = normalise(rgb, MODELS[config.model.name].normalisation)
    with torch.autocast("cpu", torch.bfloat16, enabled=config.optimiser.precision == "bfloat16"):
        levels = model(x)
    truth = mask.float() / 255
    if config.window is not None:
        levels, truth = [levels.flatten(0, 1)], truth.flatten(0, 1)
    if config.optimiser.loss == "bce":
        return nn.functional.binary_cross_entropy_with_logits(levels[0].float(), truth)
    return deep_supervision(levels, truth)


def normalise(rgb: Tensor, rule: str = "(rgb - 127) / 128") -> Tensor:
    """uint8 RGB to what the network was made for; pictures channels last, which is faster on a CPU."""
    x = rgb.float() / 255 if rule == "rgb / 255" else (rgb.float() - 127) / 128
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Exponential moving average of the weights; running statistics of the norms are averaged too."""
    for mean, value in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(value, 1 - decay)
        else:
            mean.copy_(value)


def gather(sources: Sequence[Source]) -> tuple[list[Pair], np.ndarray]:
    """All pairs of the sources, with each pair's weight."""
    pairs: list[Pair] = []
    weights: list[float] = []
    for source in sources:
        found = _pairs(source)
        pairs += found
        weights += [source.weight] * len(found)
    return pairs, np.array(weights)


@torch.no_grad()
def validate(model: nn.Module, config: TrainConfig) -> dict[str, float]:
    """Mean Dice of pictures with a polyp (threshold 0.5, original size) and share of alarms on those without."""
    model.eval()
    scores: dict[str, float] = {}
    for source in config.validate_on:
        name = source.name or source.root.name
        dices, alarms = [], []
        for image, mask in _pairs(source):
            rgb, truth = read_rgb(image), read_mask(mask) > 0
            guess = segment(model, rgb, config) >= 0.5
            if truth.any():
                dices.append(2 * (guess & truth).sum() / (guess.sum() + truth.sum()))
            else:
                alarms.append(bool(guess.any()))
        scores[f"dice {name}"] = float(np.mean(dices))
        if alarms:
            scores[f"alarms {name}"] = float(np.mean(alarms))
    return scores


@torch.no_grad()
def predict(model: nn.Module, rgb: np.ndarray, size: int) -> np.ndarray:
    """Probability (H, W) float32 of one picture (H, W, 3) uint8."""
    small = cv2.resize(rgb, (size, size), interpolation=cv2.INTER_AREA)
    x = normalise(torch.from_numpy(small).permute(2, 0, 1)[None])
    with torch.autocast("cpu", torch.bfloat16):
        probability = model(x).float().sigmoid()[0, 0].numpy()
    return cv2.resize(probability, rgb.shape[1::-1], interpolation=cv2.INTER_LINEAR)


def segment(model: nn.Module, rgb: np.ndarray, config: TrainConfig) -> np.ndarray:
    """Probability of one picture; a network that takes clips sees it as its own anchor."""
    if config.window is None:
        return predict(model, rgb, config.validate_size)
    height, width = config.window_size
    small = torch.from_numpy(cv2.resize(rgb, (width, height), interpolation=cv2.INTER_LINEAR)).permute(2, 0, 1)
    with torch.no_grad():
        logits = model(normalise(torch.stack([small, small])[None], MODELS[config.model.name].normalisation))
    probability = logits.float().sigmoid()[0, 0, 0].numpy()
    return cv2.resize(probability, rgb.shape[1::-1], interpolation=cv2.INTER_LINEAR)


def _draw(model: nn.Module, config: TrainConfig, epoch: int) -> None:
    """The first pictures of each validation set, or of the training data without one, as `predictions-NNN.png`."""
    sources = config.validate_on or tuple(source for source in config.train[:1] if source.layout == "pairs")
    if not sources:
        return
    chosen = [pair for source in sources for pair in _pairs(source)[: 8 // len(sources) or 1]]
    pictures = [(read_rgb(image), read_mask(mask) > 0) for image, mask in chosen]
    path = config.out / f"predictions-{epoch:03d}.png"
    contact_sheet(pictures, lambda rgb: segment(model, rgb, config), path)


def _pairs(source: Source) -> list[Pair]:
    return list_pairs(source.root, read_stems(source.exclude), read_stems(source.only))


def _save(state: dict[str, object], path: Path) -> None:
    partial = path.with_suffix(".part")
    torch.save(state, partial)
    partial.replace(path)


def _columns(config: TrainConfig) -> list[str]:
    return ["epoch", "loss", "rate", "seconds", *[f"dice {s.name or s.root.name}" for s in config.validate_on]]


def _write_log_header(config: TrainConfig) -> None:
    with (config.out / "log.csv").open("w", newline="") as file:
        csv.writer(file).writerow(_columns(config))


def _append_log(config: TrainConfig, row: EpochLog) -> None:
    values = {"epoch": row.epoch, "loss": row.loss, "rate": row.rate, "seconds": row.seconds, **row.scores}
    with (config.out / "log.csv").open("a", newline="") as file:
        csv.writer(file).writerow([values.get(column, "") for column in _columns(config)])
