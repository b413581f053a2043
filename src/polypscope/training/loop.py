"""The training loop: visible, resumable, and the same on one process or under `torchrun`.

An epoch is a pure function of (weights, optimiser state, seed, epoch number), and a checkpoint is written after every
epoch, so that a run which was stopped and resumed ends with the weights of one that was not.
"""

from __future__ import annotations

import copy
import csv
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from polypscope.models.efficientnet_lite import EfficientNetLite, imagenet_state
from polypscope.models.pns_plus_stream import StreamSegmenter
from polypscope.models.registry import MODELS, create
from polypscope.models.weights import load_checkpoint
from polypscope.records.errors import MissingInput, ModelError, UsageError
from polypscope.runtime.allocation import keep_pages
from polypscope.training.config import Source, TrainConfig
from polypscope.training.data import Batches, Stills, decoded
from polypscope.training.joint import Joint, Mixed, joint_loss, simulated_count
from polypscope.training.losses import deep_supervision, presence_loss
from polypscope.training.pictures import contact_sheet
from polypscope.training.precision import reduced
from polypscope.training.processes import Processes, joined
from polypscope.training.reopening import EXPORTED, reopen
from polypscope.training.simulated import render_shards
from polypscope.training.sources import Picture, list_pictures
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
    """Run or resume the training that `config` describes; returns the file with the averaged weights.

    Under `torchrun`, each process takes batches of its own and the gradients are averaged, so that a step sees
    `batch` × processes pictures; the log has the loss of the first process.
    """
    with joined() as processes:
        return _train(config, processes, say if processes.first else lambda text: None)


def _train(config: TrainConfig, processes: Processes, say: Callable[[str], None]) -> Path:
    rank, world = processes.rank, processes.world
    keep_pages()
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    config.out.mkdir(parents=True, exist_ok=True)
    with processes.first_alone():
        data, weights = open_data(config, say)
    for source in config.validate_on:
        list_pictures(source, say)  # what is missing should be said now, not after the first epoch
    model = build(config)
    average = copy.deepcopy(model).eval()
    optimiser = make_optimiser(model, config)
    rendered = 0 if config.simulated is None else simulated_count(config.optimiser.batch, config.simulated)
    sampler = Batches(weights, config.optimiser.batch, config.sizes, config.seed, config.length, rank, world, rendered)
    if len(sampler) == 0:
        raise UsageError(
            f"Recipe: expected at least one batch of {sampler.batch} pictures for each of {world} processes, found "
            f"{sampler.length} pictures in an epoch; give more of them, a larger `length` or a smaller `batch`."
        )
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
    elif processes.first:
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
        if config.frozen_norms:
            freeze_norms(segmenter_of(model))
        for batch_index, batch in enumerate(loader):
            rate = schedule(step / total, config)
            for group in optimiser.param_groups:
                group["lr"] = rate * group["relative"]
            loss = training_step(runner, batch, config)
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
            if processes.first and batch_index % 20 == 0:
                recent, told = np.mean(losses[-20:]), pace(started, batch_index + 1, total - step)
                say(f"epoch {epoch} batch {batch_index}/{len(sampler)} loss {recent:.4f} {told}")
        if processes.first:
            scores = validate(segmenter_of(average), config)
            row = EpochLog(epoch, float(np.mean(losses)), rate, time.perf_counter() - started, scores)
            _append_log(config, row)
            say(f"epoch {epoch} {asdict(row)}")
            _draw(segmenter_of(average), config, epoch)
            state = {
                "model": model.state_dict(),
                "average": average.state_dict(),
                "optimiser": optimiser.state_dict(),
                "epoch": epoch,
                "step": step,
                "config": config.model_dump_json(),
            }
            save_state(state, last)
    final = config.out / "weights.pt"
    if processes.first:
        save_state({"model": segmenter_of(average).state_dict(), "config": config.model_dump_json()}, final)
        if isinstance(average, Joint):
            channels = list(average.depth.channels)
            save_state({"depth": average.depth.state_dict(), "channels": channels}, config.out / "depth.pt")
    return final


def pace(started: float, done: int, left: int) -> str:
    """How long a step took since `started` (of `time.perf_counter`), and how long those that are left will take.

    >>> pace(time.perf_counter() - 60, 30, 90)
    '2.00 s each, 3 min left'
    """
    each = (time.perf_counter() - started) / done
    return f"{each:.2f} s each, {each * left / 60:.0f} min left"


def segmenter_of(model: nn.Module) -> nn.Module:
    """The part that outlines polyps, which is all of a model that learns nothing else."""
    return model.segmenter if isinstance(model, Joint) else model


def freeze_norms(model: nn.Module) -> None:
    """Use the running statistics of all batch norms as they are: batches of two kinds would blur them."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()


def open_data(config: TrainConfig, say: Callable[[str], None] = print) -> tuple[Dataset[Any], np.ndarray]:
    """What the recipe trains on, stills or windows, and the weight of each item."""
    if config.window is not None:
        windows, shares = [], []
        for source in config.train:
            found = list_windows(source, config.window, say)
            windows += found
            shares += [source.weight] * len(found)
        return Windows(windows, config.window_size), np.array(shares)
    pictures, weights = gather(config.train, say)
    images, masks = decoded(pictures, config.cache_side_px, config.cache or config.out / "cache")
    stills = Stills(images, masks, config.augment)
    if config.simulated is None:
        return stills, weights
    render_shards(config.simulated.folder, range(config.simulated.shards), say)
    return Mixed(stills, config.simulated), weights


def build(config: TrainConfig) -> nn.Module:
    """The model of the recipe, channels last (twice as fast on a CPU), from an earlier run or ImageNet if asked."""
    model = create(config.model.name, **config.model.arguments)
    if config.model.imagenet:
        for encoder in (module for module in model.modules() if isinstance(module, EfficientNetLite)):
            encoder.load_state_dict(imagenet_state(encoder.variant), strict=False)
    if MODELS[config.model.name].clip != (config.window is not None):
        raise UsageError(f"Recipe: expected `window` for a network that takes clips only, found {config.model.name}.")
    if MODELS[config.model.name].presence != (config.optimiser.loss == "presence"):
        raise UsageError(
            'Recipe: expected `loss = "presence"` for a network that judges whole pictures only, found '
            f'{config.model.name} with "{config.optimiser.loss}".'
        )
    if config.simulated is not None:
        if not isinstance(model, StreamSegmenter):
            raise UsageError(f"Recipe: expected pns_plus_stream beside [simulated], found {config.model.name}.")
        model = Joint(model)
    if config.start is not None:
        if config.start.suffix == EXPORTED and not config.frozen_norms:
            raise UsageError(
                "Recipe: expected `frozen_norms = true` beside a start from an exported model, whose batch norms have "
                "no statistics, found false."
            )
        load_start(model, config.start)
    return model.to(memory_format=torch.channels_last)


def load_start(model: nn.Module, checkpoint: Path) -> None:
    """The averaged weights of an earlier run, or of an exported file; heads that it did not have stay as they are.

    From the `last.pt` of a run with [simulated], such a run also takes the depth head.
    """
    if checkpoint.suffix == EXPORTED:
        reopen(segmenter_of(model), checkpoint, torch.zeros(1, 3, 64, 64))
        return
    if not checkpoint.is_file():
        raise MissingInput(
            "Recipe, start: expected the weights.pt of an earlier run or the name of a shipped model, found nothing "
            f"at {checkpoint}."
        )
    what = "weights.pt of an earlier run"
    content = load_checkpoint(checkpoint, what)
    weights = content.get("average") or content.get("model")
    if weights is None:
        raise ModelError(f"{checkpoint}: expected a {what}, found a checkpoint of something else.")
    joint = any(name.startswith("depth.") for name in weights)
    if joint and not isinstance(model, Joint):
        weights = {
            name.removeprefix("segmenter."): value for name, value in weights.items() if name.startswith("segmenter.")
        }
    target = model if joint else segmenter_of(model)
    missing, unexpected = target.load_state_dict(weights, strict=False)
    new = ("memory.", "presence.", "depth.")
    strange = [name for name in missing if not name.removeprefix("segmenter.").startswith(new)] + unexpected
    if strange:
        raise UsageError(f"Recipe, start: expected weights of the recipe's model, found {checkpoint} without a match "
                         f"for {strange[0]}.")  # fmt: skip


def make_optimiser(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW; the encoder learns more slowly, and norms and biases are not decayed."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((name.removeprefix("segmenter.").startswith("encoder."), parameter.ndim > 1), []).append(
                parameter
            )
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
    floor = 1e-3 if settings.schedule == "one-cycle" else 0.0
    return learning_rate(progress, settings.rate, settings.warm_up, floor)


def learning_rate(progress: float, rate: float, warm_up: float, floor: float = 1e-3) -> float:
    """`rate` after rising for `warm_up` of the run, then falling as a cosine to `floor` of it."""
    if progress < warm_up:
        return rate * (0.04 + 0.96 * progress / warm_up)
    falling = (progress - warm_up) / (1 - warm_up)
    return rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * falling)))


def training_step(model: nn.Module, batch: Sequence[Tensor], config: TrainConfig) -> Tensor:
    """Loss of one batch: rgb (B, 3, S, S) and mask (B, 1, S, S), or windows of them, uint8; see `Mixed` for more."""
    rgb, mask = batch[:2]
    x = normalise(rgb, MODELS[config.model.name].normalisation)
    with reduced(config.optimiser.precision):
        if config.simulated is not None:
            count = simulated_count(config.optimiser.batch, config.simulated)
            told = model(x, batch[3][-count:])
            return joint_loss(*told, mask, batch[2][-count:], config.simulated)[0]
        levels = model(x)
    truth = mask.float() / 255
    if config.window is not None:
        levels, truth = [levels.flatten(0, 1)], truth.flatten(0, 1)
    if config.optimiser.loss == "presence":
        return presence_loss(levels, truth)
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


def gather(
    sources: Sequence[Source], say: Callable[[str], None] = lambda text: None
) -> tuple[list[Picture], np.ndarray]:
    """All pictures of the sources, with each picture's weight."""
    pictures: list[Picture] = []
    weights: list[float] = []
    for source in sources:
        found = list_pictures(source, say)
        pictures += found
        weights += [source.weight] * len(found)
    return pictures, np.array(weights)


@torch.no_grad()
def validate(model: nn.Module, config: TrainConfig) -> dict[str, float]:
    """Mean Dice of pictures with a polyp (threshold 0.5, original size) and share of alarms on those without."""
    model.eval()
    scores: dict[str, float] = {}
    for source in config.validate_on:
        dices, alarms = [], []
        for picture in list_pictures(source):
            rgb, truth = picture.rgb(), picture.mask() > 0
            guess = segment(model, rgb, config) >= 0.5
            if truth.any():
                dices.append(2 * (guess & truth).sum() / (guess.sum() + truth.sum()))
            else:
                alarms.append(bool(guess.any()))
        if dices:
            scores[f"dice {source.label}"] = float(np.mean(dices))
        if alarms:
            scores[f"alarms {source.label}"] = float(np.mean(alarms))
    return scores


@torch.no_grad()
def predict(model: nn.Module, rgb: np.ndarray, size: int) -> np.ndarray:
    """Probability (H, W) float32 of one picture (H, W, 3) uint8."""
    small = cv2.resize(rgb, (size, size), interpolation=cv2.INTER_AREA)
    x = normalise(torch.from_numpy(small).permute(2, 0, 1)[None])
    with reduced():
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
    chosen = [picture for source in sources for picture in list_pictures(source)[: 8 // len(sources) or 1]]
    pictures = [(picture.rgb(), picture.mask() > 0) for picture in chosen]
    path = config.out / f"predictions-{epoch:03d}.png"
    contact_sheet(pictures, lambda rgb: segment(model, rgb, config), path)


def save_state(state: dict[str, object], path: Path) -> None:
    """Write a checkpoint whole or not at all."""
    partial = path.with_suffix(".part")
    torch.save(state, partial)
    partial.replace(path)


def _columns(config: TrainConfig) -> list[str]:
    return ["epoch", "loss", "rate", "seconds", *[f"dice {s.label}" for s in config.validate_on]]


def _write_log_header(config: TrainConfig) -> None:
    with (config.out / "log.csv").open("w", newline="") as file:
        csv.writer(file).writerow(_columns(config))


def _append_log(config: TrainConfig, row: EpochLog) -> None:
    values = {"epoch": row.epoch, "loss": row.loss, "rate": row.rate, "seconds": row.seconds, **row.scores}
    with (config.out / "log.csv").open("a", newline="") as file:
        csv.writer(file).writerow([values.get(column, "") for column in _columns(config)])
