"""Training the depth head on the frozen segmenter: it learns slowly, so it gets long runs of its own.

What the frozen part makes of a frame never changes. It is computed once and kept on disk (1 MB a frame), which makes a
step four times as fast as one that trains everything.
"""

from __future__ import annotations

import copy
import csv
import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polypscope.models.depth_head import DepthHead
from polypscope.models.pns_plus_stream import StreamSegmenter
from polypscope.records.errors import MissingInput, UsageError
from polypscope.training.allocation import keep_pages
from polypscope.training.config import DepthConfig
from polypscope.training.joint import Joint
from polypscope.training.loop import learning_rate, load_start, normalise, save_state, update_average
from polypscope.training.losses import depth_loss
from polypscope.training.precision import reduced
from polypscope.training.reopening import reopen, settle_norms
from polypscope.training.simulated import DEPTH_SIDE_PX, RAY_SIDE_PX, SIDE_PX, Shard, render_shards, shard_paths

PACE = 2  # frames of a clip resemble each other: every second one is used


class Features:
    """Simulated frames with the frozen features that the head starts from, in arrays on disk."""

    def __init__(self, folder: Path, shape: dict[str, tuple[type, tuple[int, ...]]], frames: int, mode: str) -> None:
        self.arrays: dict[str, NDArray] = {}
        for name, (kind, one) in shape.items():
            path = folder / f"{name}.npy"
            if mode == "w+":
                self.arrays[name] = np.lib.format.open_memmap(path, mode, kind, (frames, *one))
            else:
                self.arrays[name] = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.arrays["ray_mm"])

    def batch(self, chosen: NDArray[np.int64]) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """What the head takes (channels last), ray_mm (B, h, w), and the share of polyp (B, h, w) in 0...1."""
        told = {name: torch.from_numpy(array[chosen]) for name, array in self.arrays.items()}
        maps = [told[name].float() for name in ("f4", "f8", "f16")]
        inputs = (*maps, normalise(told["rgb"]), told["rays"])
        inputs = tuple(value.contiguous(memory_format=torch.channels_last) for value in inputs)
        return inputs, told["ray_mm"].float(), told["polyp"].float() / 255


def features_of(model: Joint, shards: list[Path], folder: Path, say: Callable[[str], None]) -> Features:
    """Features of the shards' frames; those that the same network left in `folder` are used again."""
    c4, c8, c16 = model.depth.channels
    shape: dict[str, tuple[type, tuple[int, ...]]] = {
        "f4": (np.float16, (c4, SIDE_PX // 4, SIDE_PX // 4)),
        "f8": (np.float16, (c8, SIDE_PX // 8, SIDE_PX // 8)),
        "f16": (np.float16, (c16, SIDE_PX // 16, SIDE_PX // 16)),
        "rgb": (np.uint8, (3, SIDE_PX, SIDE_PX)),
        "rays": (np.float32, (3, RAY_SIDE_PX, RAY_SIDE_PX)),
        "ray_mm": (np.float16, (DEPTH_SIDE_PX, DEPTH_SIDE_PX)),
        "polyp": (np.uint8, (DEPTH_SIDE_PX, DEPTH_SIDE_PX)),
    }
    identity = hashlib.sha256(" ".join(path.name for path in shards).encode())
    for value in model.segmenter.state_dict().values():
        identity.update(value.contiguous().numpy().tobytes())
    whole = folder / "whole"  # written last: what all arrays were made of
    if whole.exists() and whole.read_text() == identity.hexdigest():
        return Features(folder, shape, 0, "r")
    folder.mkdir(parents=True, exist_ok=True)
    whole.unlink(missing_ok=True)
    first = Shard.load(shards[0]).rgb[:, ::PACE]
    each = first.shape[0] * first.shape[1]
    made = Features(folder, shape, each * len(shards), "w+")
    fine = SIDE_PX // DEPTH_SIDE_PX
    for index, path in enumerate(shards):
        shard = Shard.load(path)
        rgb = torch.from_numpy(shard.rgb[:, ::PACE].reshape(each, SIDE_PX, SIDE_PX, 3)).permute(0, 3, 1, 2)
        with torch.no_grad(), reduced():
            maps = model.segmenter.encode(normalise(rgb))
        mask = shard.mask[:, ::PACE].reshape(each, DEPTH_SIDE_PX, fine, DEPTH_SIDE_PX, fine)
        values = {
            **dict(zip(("f4", "f8", "f16"), (level.float().numpy() for level in maps), strict=True)),
            "rgb": rgb.numpy(),
            "rays": np.broadcast_to(shard.directions.transpose(2, 0, 1), (each, 3, RAY_SIDE_PX, RAY_SIDE_PX)),
            "ray_mm": shard.ray_mm[:, ::PACE].reshape(each, DEPTH_SIDE_PX, DEPTH_SIDE_PX),
            "polyp": mask.mean((2, 4)),
        }
        for name, value in values.items():
            made.arrays[name][index * each : (index + 1) * each] = value
        if index % 50 == 0:
            say(f"features of {index}/{len(shards)} sequences")
    for array in made.arrays.values():
        array.flush()
    whole.write_text(identity.hexdigest())
    return made


def polyp_weight(polyp: Tensor, share: float = 0.3) -> Tensor:
    """How much a pixel counts: 1, and on polyps so much more that it adds up to `share` of the frame's pixels.

    Sizes hang on the few pixels of a polyp. A pixel of one counts at least 4 and at most 31.
    """
    extra = share * polyp[0].numel() / polyp.sum((1, 2), keepdim=True).clamp(min=1)
    return 1 + extra.clamp(3, 30) * polyp


@torch.no_grad()
def depth_errors(head: DepthHead, data: Features, batch: int = 12) -> tuple[float, float, float]:
    """Mean over frames of AbsRel metric and after median alignment, and of AbsRel on polyps (20 pixels and more)."""
    metric, aligned, on_polyp = [], [], []
    for start in range(0, len(data), batch):
        inputs, ray_mm, polyp = data.batch(np.arange(start, min(start + batch, len(data))))
        with reduced():
            told = head(*inputs).float()[:, 0].exp()
        for guess, truth, share in zip(told, ray_mm, polyp, strict=True):
            valid = torch.isfinite(truth) & (truth > 1)
            if not valid.any():
                continue
            ratio = guess[valid] / truth[valid]
            metric.append(float((ratio - 1).abs().mean()))
            aligned.append(float((ratio / ratio.median() - 1).abs().mean()))
            inside = valid & (share > 0.5)
            if inside.sum() >= 20:
                on_polyp.append(float((guess[inside] / truth[inside] - 1).abs().mean()))
    return tuple(float(np.mean(values)) if values else float("nan") for values in (metric, aligned, on_polyp))


def train_depth(config: DepthConfig, say: Callable[[str], None] = print) -> Path:
    """Render what is missing, compute features, train the head, and write `depth.pt`; resumes after each epoch."""
    keep_pages()
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    model = _frozen(config)
    render_shards(config.simulated, config.shards, say)
    paths = shard_paths(config.simulated)[: config.shards]
    if len(paths) <= config.held_out:
        raise UsageError(f"Recipe: expected more sequences than the {config.held_out} held out, found {len(paths)}.")
    cut = len(paths) - config.held_out
    data = features_of(model, paths[:cut], config.features / "train", say)
    judged = features_of(model, paths[cut:], config.features / "held-out", say) if config.held_out else None
    if config.head is not None:
        _go_on_from(config.head, model.depth, data, config.batch)
    head = model.depth.train().requires_grad_(True)
    average = copy.deepcopy(head).eval()
    optimiser = torch.optim.AdamW(head.parameters(), lr=config.rate, weight_decay=1e-3)
    config.out.mkdir(parents=True, exist_ok=True)
    last, first = config.out / "last.pt", 0
    if last.exists():
        saved = torch.load(last, weights_only=True)
        head.load_state_dict(saved["model"])
        average.load_state_dict(saved["average"])
        optimiser.load_state_dict(saved["optimiser"])
        first = saved["epoch"] + 1
        say(f"resuming after epoch {saved['epoch']}")
    steps = len(data) // config.batch
    if steps == 0:
        raise UsageError(f"Recipe: expected at least one batch of {config.batch} frames, found {len(data)} frames.")
    for epoch in range(first, config.epochs):
        order = np.random.default_rng((config.seed, epoch)).permutation(len(data))
        started, losses = time.perf_counter(), []
        for index in range(steps):
            step = epoch * steps + index
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step / (config.epochs * steps), config.rate, 0.05)
            inputs, ray_mm, polyp = data.batch(np.sort(order[index * config.batch :][: config.batch]))
            with reduced():
                told = head(*inputs)
            loss = depth_loss(told.float(), ray_mm, polyp_weight(polyp))
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(head.parameters(), 5.0)
            optimiser.step()
            update_average(average, head, min(0.998, (1 + step) / (10 + step)))
            losses.append(float(loss.detach()))
            if index % 50 == 0:
                pace = (time.perf_counter() - started) / (index + 1)
                say(f"epoch {epoch} batch {index}/{steps} loss {np.mean(losses[-50:]):.4f} {pace:.2f} s each")
        errors = depth_errors(average, judged) if judged is not None else ()
        say(f"epoch {epoch} loss {np.mean(losses):.4f}, AbsRel metric, aligned, polyp: " + _joined(errors))
        with (config.out / "log.csv").open("a", newline="") as file:
            csv.writer(file).writerow([epoch, f"{np.mean(losses):.5f}", *(f"{error:.5f}" for error in errors)])
        state = {"model": head.state_dict(), "average": average.state_dict(), "optimiser": optimiser.state_dict()}
        save_state({**state, "epoch": epoch}, last)
    weights = config.out / "depth.pt"
    save_state({"depth": average.state_dict(), "channels": list(average.channels)}, weights)
    return weights


def _frozen(config: DepthConfig) -> Joint:
    """Segmenter and head of the joint run that `start` names, nothing of it learning."""
    if not config.start.is_file():
        raise MissingInput(f"Recipe, start: expected the joint.pt of an average, found nothing at {config.start}.")
    model = Joint(StreamSegmenter(config.encoder))
    load_start(model, config.start)
    return model.to(memory_format=torch.channels_last).eval().requires_grad_(False)


def _go_on_from(exported: Path, head: DepthHead, data: Features, batch: int, batches: int = 20) -> None:
    """An exported head, its norms with statistics of the frames that it will be trained on."""
    spread = np.linspace(0, len(data) - 1, min(len(data), batch * batches)).astype(np.int64)
    parts = np.array_split(spread, max(1, len(spread) // batch))
    reopen(head, exported, *data.batch(parts[0])[0])

    def run() -> None:
        for part in parts:
            head(*data.batch(part)[0])

    settle_norms(head, run)


def _joined(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4f}" for value in values) or "not measured"
