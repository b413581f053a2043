"""Training the depth head: single simulated frames of many colons, through the first stages of a frozen segmenter."""

from __future__ import annotations

import copy
import csv
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from polypscope.models.depth_head import DepthHead, load_head
from polypscope.models.efficientnet_lite import EfficientNetLite
from polypscope.models.pns_plus_stream import StreamSegmenter
from polypscope.records.errors import MissingInput, ModelError, UsageError
from polypscope.runtime.allocation import keep_pages
from polypscope.runtime.backends import open_session
from polypscope.runtime.cards import find_card
from polypscope.runtime.runlog import sha256
from polypscope.training.augment import colour
from polypscope.training.clips import spoil
from polypscope.training.config import DepthConfig
from polypscope.training.joint import Item, turned, zoomed
from polypscope.training.loop import learning_rate, load_start, normalise, pace, save_state, update_average
from polypscope.training.losses import depth_loss, scale_loss
from polypscope.training.muon import make_optimisers
from polypscope.training.precision import reduced
from polypscope.training.reopening import reopen, settle_norms, settle_sizes
from polypscope.training.simulated import SIDE_PX, Shard, render_shards
from polypscope.training.storage import folded

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]  # what the head takes: features at strides 4 and 8, picture, rays
FEATURES = ("feature_4", "feature_8")
Features = Callable[[Tensor], tuple[Tensor, Tensor]]  # (B, 3, S, S) uint8 to features at strides 4 and 8


class Views(Dataset[Item]):
    """Frames of shards: rgb (3, S, S) uint8, polyp (1, S, S) uint8, ray_mm (S/4, S/4), rays (3, 22, 22).

    An item is (number of the frame, seed of its change); without a seed it is given as it was rendered.
    """

    def __init__(self, paths: Sequence[Path], zoomed: float = 0.4) -> None:
        self.paths, self.zoomed = paths, zoomed
        self.each = int(np.prod(Shard.load(paths[0]).mask.shape[:2]))

    def __len__(self) -> int:
        return len(self.paths) * self.each

    def __getitem__(self, item: tuple[int, int | None]) -> Item:
        cv2.setNumThreads(0)
        number, seed = item
        shard = Shard.load(self.paths[number // self.each])
        at = divmod(number % self.each, shard.mask.shape[1])
        rgb, mask, ray_mm, rays = shard.rgb[at], shard.mask[at], shard.ray_mm[at].astype(np.float32), shard.directions
        if seed is not None:
            rng = np.random.default_rng(seed)
            rgb, mask, ray_mm, rays = turned(rgb, mask, ray_mm, rays, rng)
            if rng.random() < self.zoomed:
                rgb, mask, ray_mm, rays = zoomed(rgb, mask, ray_mm, rays, SIDE_PX, rng)
            # Strong changes of colour and exposure would hide how near the light is, blur how fine the grain.
            rgb = spoil(colour(np.ascontiguousarray(rgb), rng, 0.25), rng, 0.08)
        arrays = (np.ascontiguousarray(array) for array in (rgb, mask, ray_mm, rays.astype(np.float32)))
        rgb_, mask_, ray_mm_, rays_ = (torch.from_numpy(array) for array in arrays)
        return rgb_.permute(2, 0, 1), mask_[None], ray_mm_, rays_.permute(2, 0, 1)


def draws(frames: int, epoch: int, length: int, seed: int) -> list[tuple[int, int | None]]:
    """Frames of an epoch, each with a seed: every frame is drawn once before any is drawn again."""
    drawn: list[tuple[int, int | None]] = []
    for position in range(epoch * length, (epoch + 1) * length):
        turn, place = divmod(position, frames)
        if place == 0 or not drawn:
            order = np.random.default_rng((seed, turn)).permutation(frames)
        drawn.append((int(order[place]), int(np.random.default_rng((seed, 1, position)).integers(2**62))))
    return drawn


@torch.no_grad()
def inputs_of(features: Features, rgb: Tensor, rays: Tensor) -> Inputs:
    """What the head takes of a batch, channels last."""
    f4, f8 = features(rgb)
    x = normalise(rgb).contiguous(memory_format=torch.channels_last)
    return f4, f8, x, rays.contiguous(memory_format=torch.channels_last)


class EncoderFeatures:
    """Features of a frozen encoder; norms are folded into convolutions, which takes less time."""

    def __init__(self, encoder: EfficientNetLite) -> None:
        quick = folded(_Finest(encoder), torch.zeros(1, 3, 64, 64)).encoder
        self.encoder: EfficientNetLite = quick.to(memory_format=torch.channels_last).requires_grad_(False)  # type: ignore[assignment, operator, union-attr]

    @torch.no_grad()
    def __call__(self, rgb: Tensor) -> tuple[Tensor, Tensor]:
        with reduced():
            _, f4, f8 = self.encoder(normalise(rgb).contiguous(memory_format=torch.channels_last), 3)
        return f4.float(), f8.float()


class _Finest(nn.Module):
    """The features that the head takes, as one tensor."""

    def __init__(self, encoder: EfficientNetLite) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([feature.flatten(1) for feature in self.encoder(x, 3)], 1)


class ExportedFeatures:
    """Features as an exported segmenter tells them to the head at run time: in 8 bits they are not quite the same."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnx
        from onnx.utils import Extractor

        card = find_card(path)
        whole = onnx.load(str(card.check_file()))
        if not set(FEATURES) <= {value.name for value in whole.graph.output}:
            raise ModelError(
                f"Recipe, reads: expected a segmenter that tells {', '.join(FEATURES)}, found {card.name}."
            )
        # Only what leads to these features runs.
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "features.onnx"
            onnx.save(Extractor(whole).extract_model(["image"], list(FEATURES)), str(part))
            self._session = open_session(part, threads)

    def __call__(self, rgb: Tensor) -> tuple[Tensor, Tensor]:
        told = self._session.run({"image": rgb.permute(0, 2, 3, 1).contiguous().numpy()})
        f4, f8 = (torch.from_numpy(told[name]).contiguous(memory_format=torch.channels_last) for name in FEATURES)
        return f4, f8


def share_of(mask: Tensor, like: Tensor) -> Tensor:
    """How much of each coarse pixel is polyp, 0...1; mask (B, 1, S, S) uint8 → the size of `like` (B, h, w)."""
    return nn.functional.interpolate(mask.float() / 255, size=like.shape[-2:], mode="area")[:, 0]


def polyp_weight(polyp: Tensor, share: float = 0.3) -> Tensor:
    """How much a pixel counts: 1, and on polyps so much more that it adds up to `share` of the frame's pixels.

    Sizes hang on the few pixels of a polyp. A pixel of one counts at least 4 and at most 31.
    """
    extra = share * polyp[0].numel() / polyp.sum((1, 2), keepdim=True).clamp(min=1)
    return 1 + extra.clamp(3, 30) * polyp


@torch.no_grad()
def depth_errors(head: nn.Module, features: Features, batches: Iterator[Item]) -> tuple[float, float, float]:
    """Mean over frames of AbsRel metric and after median alignment, and of AbsRel on polyps (20 pixels and more)."""
    metric, aligned, on_polyp = [], [], []
    for rgb, mask, ray_mm, rays in batches:
        with reduced():
            told = head(*inputs_of(features, rgb, rays)).float()[:, 0].exp()
        for guess, truth, share in zip(told, ray_mm, share_of(mask, ray_mm), strict=True):
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
    """Render what is missing, train the head, and write `depth.pt`; resumes after each epoch."""
    keep_pages()
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    encoder = _frozen(config)
    features = EncoderFeatures(encoder) if config.reads is None else _exported(config.reads, config)
    left_out = config.held_out + config.seen
    if config.shards <= left_out:
        raise UsageError(
            f"Recipe: expected more sequences than the {config.held_out} held out and the {config.seen} seen before, "
            f"found {config.shards}."
        )
    judging = render_shards(config.simulated, range(config.held_out), say, views=True)
    learning = render_shards(config.simulated, range(left_out, config.shards), say, views=True)
    if not learning:
        raise UsageError(
            f"Recipe: expected sequences to learn from in {config.simulated}, found that none can be made."
        )
    data = Views(learning, config.zoomed)
    judged = Views(judging) if judging else None
    steps = min(config.length, len(data)) // config.batch
    if steps == 0:
        raise UsageError(f"Recipe: expected at least one batch of {config.batch} frames, found {len(data)} frames.")
    head = _first(config, encoder, features, data)
    before, average = copy.deepcopy(head).eval(), copy.deepcopy(head).eval()
    optimisers = make_optimisers(head, config.rate)
    config.out.mkdir(parents=True, exist_ok=True)
    last, first = config.out / "last.pt", 0
    if last.exists():
        saved = torch.load(last, weights_only=True)
        head.load_state_dict(saved["model"])
        average.load_state_dict(saved["average"])
        for optimiser, state in zip(optimisers, saved["optimisers"], strict=True):
            optimiser.load_state_dict(state)
        first = saved["epoch"] + 1
        say(f"resuming after epoch {saved['epoch']}")
    for epoch in range(first, config.epochs):
        chosen = draws(len(data), epoch, steps * config.batch, config.seed)
        started, losses = time.perf_counter(), []
        head.train()
        for index, (rgb, mask, ray_mm, rays) in enumerate(_batches(data, chosen, config)):
            step = epoch * steps + index
            rate = learning_rate(step / (config.epochs * steps), config.rate, 0.03)
            for group in (group for optimiser in optimisers for group in optimiser.param_groups):
                group["lr"] = rate
            inputs = inputs_of(features, rgb, rays)
            with reduced():
                told = head(*inputs)
            loss = depth_loss(told.float(), ray_mm, polyp_weight(share_of(mask, ray_mm)))
            loss = loss + scale_loss(told.float(), ray_mm)
            head.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(head.parameters(), 5.0)
            for optimiser in optimisers:
                optimiser.step()
            update_average(average, head, min(0.998, (1 + step) / (10 + step)))
            losses.append(float(loss.detach()))
            if index % 50 == 0:
                told_pace = pace(started, index + 1, config.epochs * steps - step - 1)
                say(f"epoch {epoch} batch {index}/{steps} loss {np.mean(losses[-50:]):.4f} {told_pace}")
        errors = _judged(average, features, judged, config)
        say(f"epoch {epoch} loss {np.mean(losses):.4f}, AbsRel metric, aligned, polyp: " + _joined(errors))
        with (config.out / "log.csv").open("a", newline="") as file:
            csv.writer(file).writerow([epoch, f"{np.mean(losses):.5f}", *(f"{error:.5f}" for error in errors)])
        memory = [optimiser.state_dict() for optimiser in optimisers]
        state = {"model": head.state_dict(), "average": average.state_dict(), "optimisers": memory}
        save_state({**state, "epoch": epoch}, last)
    if config.before > 0:
        # Two ends of one valley: a point between them errs less than either.
        update_average(average, before, 1 - config.before)
        errors = _judged(average, features, judged, config)
        share = f"{config.before:g} of them"
        say(f"mean with the weights before, {share}: AbsRel metric, aligned, polyp: {_joined(errors)}")
    weights = config.out / "depth.pt"
    save_state({"depth": average.state_dict(), "channels": list(average.channels)}, weights)
    return weights


def _judged(head: DepthHead, features: Features, judged: Views | None, config: DepthConfig) -> tuple[float, ...]:
    if judged is None:
        return ()
    return depth_errors(head, features, _batches(judged, [(number, None) for number in range(len(judged))], config))


def _batches(data: Views, chosen: list[tuple[int, int | None]], config: DepthConfig) -> Iterator[Item]:
    # Between steps rather than beside them: other threads and processes would hold up those that compute.
    with ThreadPoolExecutor(config.threads) as pool:
        for start in range(0, len(chosen), config.batch):
            yield default_collate(list(pool.map(data.__getitem__, chosen[start : start + config.batch])))


def _frozen(config: DepthConfig) -> EfficientNetLite:
    """The encoder of the segmenter that `start` names, nothing of it learning."""
    if not config.start.is_file():
        raise MissingInput(f"Recipe, start: expected a segmenter to branch from, found nothing at {config.start}.")
    segmenter = StreamSegmenter(config.encoder)
    load_start(segmenter, config.start)
    return segmenter.encoder.to(memory_format=torch.channels_last).eval().requires_grad_(False)


def _exported(path: Path, config: DepthConfig) -> ExportedFeatures:
    """The features of the exported segmenter that `reads` names, which must be `start` or made from it."""
    card = find_card(path)
    # A checkpoint does not say what was exported from it.
    if config.start.suffix == ".onnx" and sha256(config.start) not in (card.sha256, card.made_from):
        raise ModelError(
            f"Recipe, reads: expected {config.start.name} or its 8-bit form, found {card.name}, which is another "
            "segmenter; a head reads the features of the segmenter that it branches from."
        )
    return ExportedFeatures(path, config.threads)


def _first(
    config: DepthConfig, encoder: EfficientNetLite, features: Features, data: Views, batches: int = 12
) -> DepthHead:
    """A head that starts from the encoder's own upper stages, or one to go on from."""
    _, c4, c8, _, _ = encoder.channels
    head = DepthHead((c4, c8)).to(memory_format=torch.channels_last)
    spread = np.linspace(0, len(data) - 1, config.batch * batches).astype(int)
    fed = [
        inputs_of(features, rgb, rays) for rgb, _, _, rays in _batches(data, [(int(n), None) for n in spread], config)
    ]
    unsettled: nn.Module = head.eval()
    if config.head is not None and not config.head.is_file():
        raise MissingInput(f"Recipe, head: expected a depth head to go on from, found nothing at {config.head}.")
    if config.head is not None and config.head.suffix == ".pt":
        known = load_head(config.head)
        if known.channels != head.channels:
            raise ModelError(
                f"{config.head}: expected a head for features of {c4} and {c8} channels, found one for "
                f"{known.channels[0]} and {known.channels[1]}."
            )
        return known.to(memory_format=torch.channels_last)
    if config.head is not None:
        reopen(head, config.head, *fed[0])
    else:
        head.take_after(encoder)
        unsettled = nn.ModuleList([head.stage3, head.stage4, head.stage5])

    def run() -> None:
        for inputs in fed:
            head(*inputs)

    # Norms that came out of a file, the encoder's too, have no statistics of their own.
    settle_norms(unsettled, run)
    if config.head is not None:
        settle_sizes(head, *fed[0])
    return head


def _joined(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4f}" for value in values) or "not measured"
