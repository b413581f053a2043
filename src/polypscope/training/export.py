"""Torch to ONNX: the graph, its parity with torch, an optional int8 form, and the card that goes with it."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from polypscope.io.paths import read_text
from polypscope.models.depth_head import DepthGraph, DepthHead, load_head
from polypscope.models.efficientnet_lite import SCALING
from polypscope.models.ensemble import Ensemble
from polypscope.models.pns_plus_stream import State, StreamGraph, StreamSegmenter
from polypscope.models.registry import MODELS, create
from polypscope.models.weights import load_checkpoint
from polypscope.records.errors import MissingInput, ModelError, UsageError
from polypscope.runtime.backends import open_session
from polypscope.runtime.cards import InputSpec, ModelCard, find_card
from polypscope.runtime.depth import SHARED
from polypscope.runtime.runlog import sha256
from polypscope.simulator import sequence
from polypscope.training.config import TrainConfig
from polypscope.training.reopening import parts_of, reopen
from polypscope.training.simulated import RAY_SIDE_PX
from polypscope.training.storage import folded, rounded, store_half

OPSET = 18
PARITY = 1e-4
FEATURES = ("feature_4", "feature_8", "feature_16")


class ImageGraph(nn.Module):
    """A single-picture network as it is exported: pixels in, probability out."""

    def __init__(self, model: nn.Module, mean: float, std: float) -> None:
        super().__init__()
        self.model, self.mean, self.std = model, mean, std

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """image (B, H, W, 3) uint8 → probability (B, 1, H, W)."""
        return self.model((image.permute(0, 3, 1, 2).float() - self.mean) / self.std).sigmoid()


@dataclass(frozen=True)
class Parity:
    """Largest difference between torch and ONNX Runtime, over several inputs and steps."""

    probability: float
    state: float

    @property
    def holds(self) -> bool:
        """Within what the house promises."""
        return max(self.probability, self.state) < PARITY


def load_trained(checkpoint: Path) -> tuple[nn.Module, TrainConfig]:
    """The averaged weights of a `weights.pt` or `last.pt` that `polypscope train` wrote."""
    what = "checkpoint of `polypscope train`"
    content = load_checkpoint(checkpoint, what)
    try:
        config = TrainConfig.model_validate_json(content["config"])
    except (KeyError, TypeError, ValueError):
        raise ModelError(f"{checkpoint}: expected a {what}, found one without its recipe.") from None
    model = create(config.model.name, **config.model.arguments)
    # A segmenter fresh from the image recipe has no memory and no presence head yet; untrained, they change nothing.
    missing, _ = model.load_state_dict(content.get("average", content["model"]), strict=False)
    if any(not name.startswith(("memory.", "presence.")) for name in missing):
        raise ModelError(f"{checkpoint}: expected all weights of {config.model.name}, found none for {missing[0]}.")
    return model.eval(), config


def load_ensemble(first: nn.Module, others: Sequence[str | Path]) -> Ensemble:
    """A trained segmenter together with others: checkpoints, exported files, or names of shipped models.

    Of a file that is an ensemble itself, every member counts as one.
    """
    members = [first, *(member for other in others for member in load_members(other))]
    for model in members:
        if not isinstance(model, StreamSegmenter):
            raise UsageError(f"Ensemble: expected members like pns_plus_stream, found a {type(model).__name__}.")
    return Ensemble.of(members).eval()


def load_members(source: str | Path) -> list[nn.Module]:
    """The networks of a checkpoint, an exported file or a shipped model: one, or all of an ensemble's in order."""
    if Path(source).suffix == ".pt":
        return [load_trained(Path(source))[0]]
    path = find_card(source).weights_path
    return [_reopened(path, part) for part in parts_of(path)]


def _reopened(path: Path, part: str) -> StreamSegmenter:
    refused: ModelError | None = None
    for variant in SCALING:  # a card does not say which encoder its network has, but only one fits
        model = StreamSegmenter(variant)
        try:
            reopen(model, path, torch.zeros(1, 3, 64, 64), part=part)
        except ModelError as error:
            refused = error
        else:
            return model
    assert refused is not None
    raise refused


def write_graph(model: nn.Module, name: str, path: Path, size: int) -> InputSpec:
    """Write the ONNX file of an image or streaming model for square inputs of `size` pixels."""
    if size % 32 or size < 64:
        raise UsageError(f"Size: expected a multiple of 32 from 64 on, found {size}.")
    if MODELS[name].clip:
        raise UsageError(f"Model {name}: expected an image or streaming model, found one that takes whole windows.")
    path.parent.mkdir(parents=True, exist_ok=True)
    image = torch.randint(0, 256, (1, size, size, 3), dtype=torch.uint8)
    if isinstance(model, StreamSegmenter):
        graph: nn.Module = StreamGraph(model)
        state = [f"state_{field}" for field in State._fields]
        inputs, arguments = ["image", *state], (image, *model.empty_state(1, size, size))
        outputs = ["probability", *(f"next_{field}" for field in State._fields), *FEATURES]
    else:
        graph, inputs, outputs, arguments = ImageGraph(model, 127.0, 128.0), ["image"], ["probability"], (image,)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter warns of its own future and of shapes that are fixed on purpose
        torch.onnx.export(
            graph.eval(),
            arguments,
            str(path),
            input_names=inputs,
            output_names=outputs,
            dynamic_axes={key: {0: "n"} for key in inputs + outputs},
            opset_version=OPSET,
            dynamo=False,
        )
    return InputSpec(width=size, height=size)


@dataclass(frozen=True)
class Written:
    """An exported segmenter: its input, how far the file is from torch, and how far rounding moved it."""

    spec: InputSpec
    parity: Parity
    rounding: Parity | None


def export_segmenter(model: nn.Module, name: str, out: Path, size: int, half: bool = False) -> Written:
    """Write the ONNX file, measure it against torch, and keep it only if both compute the same.

    With `half`, the weights are first rounded to what 16 bits hold, so that the file is the ONNX form of the rounded
    model; how far that is from the trained one is measured too.
    """
    exported = model
    if not MODELS[name].clip:
        # Folded here and not by the exporter, which would rob the layers of their names (`training.reopening`).
        exported = folded(model, torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0)))
        exported = rounded(exported) if half else exported
    partial = out.with_suffix(".part.onnx")
    spec = write_graph(exported, name, partial, size)
    if half:
        store_half(partial)
    parity = measure_parity(exported if half else model, partial, size)
    rounding = measure_parity(model, partial, size) if half else None
    accept(partial, out, max(parity.probability, parity.state))
    return Written(spec, parity, rounding)


def accept(partial: Path, out: Path, parity: float) -> None:
    """Give a file its name, unless it computes something else than torch."""
    if not parity < PARITY:
        partial.unlink()
        raise ModelError(
            f"{out}: expected a file that computes what torch computes within {PARITY:g}, found a difference of "
            f"{parity:.1e}; nothing was written."
        )
    partial.replace(out)


@torch.no_grad()
def measure_parity(model: nn.Module, path: Path, size: int, steps: int = 4) -> Parity:
    """Run torch and ONNX Runtime side by side on the same frames, each carrying its own state.

    The frames are of a simulated sequence with a polyp: on noise a trained network answers zero everywhere and its
    memory matches nothing, so that any two files would agree. A black frame follows, through which a memory holds on to
    what it has.
    """
    session = open_session(path)
    shown = sequence(seed=10, frames=steps, width=size, height=size, negatives=0.0, triangles=20_000)
    streaming = isinstance(model, StreamSegmenter)
    graph = StreamGraph(model).eval() if streaming else ImageGraph(model, 127.0, 128.0).eval()
    state = model.empty_state(1, size, size) if streaming else ()
    theirs = {f"state_{field}": value.numpy() for field, value in zip(State._fields, state, strict=False)}
    worst, worst_state = 0.0, 0.0
    for rgb in (*(item.frame.rgb for item in shown), np.zeros((size, size, 3), np.uint8)):
        image = rgb[None].copy()
        expected = graph(torch.from_numpy(image), *state)
        found = session.run({"image": image, **theirs})
        if not streaming:
            worst = max(worst, float(np.abs(expected.numpy() - found["probability"]).max()))
            continue
        worst = max(worst, float(np.abs(expected[0].numpy() - found["probability"]).max()))
        state = State(*expected[1 : 1 + len(State._fields)])
        theirs = {f"state_{field}": found[f"next_{field}"] for field in State._fields}
        for field, value in zip(State._fields, state, strict=True):
            scale = max(1.0, float(value.abs().max()))
            worst_state = max(worst_state, float(np.abs(value.numpy() - theirs[f"state_{field}"]).max()) / scale)
    return Parity(worst, worst_state)


def write_depth_graph(head: DepthHead, path: Path, size: int) -> InputSpec:
    """Write the ONNX file of the depth head for the features of a segmenter with square inputs of `size` pixels.

    It takes one frame at a time, as `DepthEstimator` gives them: with every size known, dozens of nodes are left out.
    """
    arguments = _depth_inputs(head, size, torch.Generator().manual_seed(0))
    image, *features, rays = arguments
    head = folded(head, *features, image.permute(0, 3, 1, 2).float(), rays.permute(0, 3, 1, 2))
    inputs, outputs = [*SHARED, "rays"], ["ray_mm", "sigma_mm"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            DepthGraph(head).eval(),
            arguments,
            str(path),
            input_names=inputs,
            output_names=outputs,
            opset_version=OPSET,
            dynamo=False,
        )
    return InputSpec(width=size, height=size)


def export_depth(checkpoint: Path, out: Path, segmenter: Path, name: str, facts: dict[str, Any]) -> float:
    """Write the depth head's ONNX file and card, tied to the exported segmenter; returns the parity."""
    owner = find_card(segmenter)
    head = load_head(checkpoint)
    partial = out.with_suffix(".part.onnx")
    spec = write_depth_graph(head.eval(), partial, owner.input.width)
    parity = measure_depth_parity(head, partial, owner.input.width)
    accept(partial, out, parity)
    write_card(out, name, "depth_head", spec, {"kind": "depth", **facts, "segmenter": owner.sha256})
    return parity


@torch.no_grad()
def measure_depth_parity(head: DepthHead, path: Path, size: int) -> float:
    """Largest relative difference of the distance between torch and ONNX Runtime."""
    arguments = _depth_inputs(head, size, torch.Generator().manual_seed(1))
    expected = DepthGraph(head).eval()(*arguments)[0].numpy()
    feeds = {name: value.numpy() for name, value in zip([*SHARED, "rays"], arguments, strict=True)}
    return float((np.abs(open_session(path).run(feeds)["ray_mm"] - expected) / expected).max())


def _depth_inputs(head: DepthHead, size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    image = torch.randint(0, 256, (1, size, size, 3), dtype=torch.uint8, generator=generator)
    features = [
        torch.rand(1, channels, size // stride, size // stride, generator=generator)
        for channels, stride in zip(head.channels, (4, 8), strict=True)
    ]
    rays = torch.nn.functional.normalize(torch.rand(1, RAY_SIDE_PX, RAY_SIDE_PX, 3, generator=generator) + 0.1, dim=-1)
    return (image, *features, rays)


def write_card(path: Path, name: str, architecture: str, spec: InputSpec, facts: dict[str, Any]) -> ModelCard:
    """Write the card beside the ONNX file; `facts` are the fields that only a person knows."""
    fields = {
        "name": name,
        "kind": "segmenter",
        "architecture": architecture,
        "summary": f"{architecture} trained with polypscope.",
        **facts,
        "file": path.name,
        "sha256": sha256(path),
        "bytes": path.stat().st_size,
        "input": spec.model_dump(),
    }
    card = ModelCard.model_validate(fields).model_copy(update={"path": path.with_suffix(".json")})
    partial = path.with_suffix(".json.part")
    partial.write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")
    partial.replace(path.with_suffix(".json"))
    return card


def read_facts(path: Path) -> dict[str, Any]:
    """The TOML file with the card's hand-written fields."""
    if not path.is_file():
        raise MissingInput(f"{path}: expected a TOML file with the card's facts, found nothing there.")
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: expected TOML, found a mistake: {error}.") from None
