"""An 8-bit form of an exported model: smaller, faster, and the same masks but for rounding.

Weights are quantised channel by channel and activations layer by layer, calibrated on training pictures. The stem and
the first block, the heads that draw the map and everything that touches the state stay in float32: there an error would
show in every pixel, or be carried on from frame to frame.

Processors without 8-bit dot products (VNNI) add pairs of products in 16 bits, which overflow. Weights of convolutions
that mix channels therefore get 7 bits, so that every processor computes the same.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from polypscope.evaluation.segmentation.overlap import dice
from polypscope.runtime.backends import Session, open_session
from polypscope.runtime.cards import find_card
from polypscope.runtime.depth import SHARED, DepthEstimator
from polypscope.runtime.segmenter import Segmenter
from polypscope.training.config import Source
from polypscope.training.export import write_card
from polypscope.training.loop import gather
from polypscope.training.simulated import FIRST_VIEWS, render_views
from polypscope.training.sources import Picture

OPERATORS = ("Conv", "Clip", "Relu", "Add", "Resize")
CALIBRATION = 96  # pictures
VIEWS = 4  # frames of each simulated sequence
UNUSED = 6500  # seed of sequences that are only compared on
EXACT = 3  # convolutions in a row from the picture on, stem and first block: large maps of few channels gain nothing


def export_int8(
    source: Path, path: Path, calibrate_on: Sequence[Source], compare_on: Sequence[Source], facts: dict[str, Any]
) -> list[str]:
    """Write the 8-bit form of an exported file with its card, and say what it gains and costs.

    `facts` are fields of the card that differ from those of the file that it is made from, whose scores and speed are
    left out.
    """
    card = find_card(source)
    whole = card.check_file()
    chosen = (squeezed(picture, card.input.width) for picture in choose(calibrate_on, CALIBRATION, seed=0))
    write_int8(whole, path, _feeds(open_session(whole), chosen), precise_nodes)
    said = compare_int8(source, path, compare_on, card.input.width).lines()
    known = card.model_dump(exclude={"name", "file", "sha256", "bytes", "input", "architecture", "scores", "speed"})
    known |= {"storage": "int8", "made_from": card.sha256, **facts}
    known["notes"] = [*known["notes"], *said]
    write_card(path, path.stem, card.architecture, card.input, known)
    return said


def export_depth_int8(source: Path, path: Path, facts: dict[str, Any], sequences: int = 24) -> list[str]:
    """Write the 8-bit form of an exported depth head with its card, and say what it gains and costs.

    It is calibrated on frames of so many training sequences, as the segmenter that runs by default sees them, and
    compared on as many that were used for nothing.
    """
    card = find_card(source)
    whole, segmenter = card.check_file(), Segmenter.load()
    DepthEstimator(card, open_session(whole), segmenter)  # refuses a head of another segmenter
    write_int8(whole, path, (feed for feed, _ in _views(segmenter, sequences, FIRST_VIEWS)), depth_heads)
    sessions = {"whole": open_session(whole), "small": open_session(path)}
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    errors: dict[str, list[float]] = {name: [] for name in sessions}
    for feed, ray_mm in _views(segmenter, sequences, UNUSED):
        valid = np.isfinite(ray_mm)
        for name, session in sessions.items():
            started = time.perf_counter()
            told = session.run(feed)["ray_mm"][0, 0]
            seconds[name].append(time.perf_counter() - started)
            errors[name].append(float(np.abs(told[valid] / ray_mm[valid] - 1).mean()))
    said = [
        f"int8: {path.stat().st_size / whole.stat().st_size:.2f} x the bytes and "
        f"{np.median(seconds['small']) / np.median(seconds['whole']):.2f} x the time per frame (head alone, two "
        "threads, this processor)",
        f"int8: AbsRel {np.mean(errors['small']):.4f} instead of {np.mean(errors['whole']):.4f} "
        f"({len(errors['small'])} simulated frames of colons that were never trained on)",
    ]
    known = card.model_dump(exclude={"name", "file", "sha256", "bytes", "input", "architecture", "scores", "speed"})
    known |= {"storage": "int8", "made_from": card.sha256, **facts}
    known["notes"] = [*known["notes"], *said]
    write_card(path, path.stem, card.architecture, card.input, known)
    return said


def _views(segmenter: Segmenter, sequences: int, seed: int) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """What a depth head takes of simulated frames, and their distances along the rays in mm."""
    for index in range(sequences):
        shard = render_views(index, VIEWS, seed)
        for rgb, ray_mm in zip(shard.rgb[:, 0], shard.ray_mm[:, 0], strict=True):
            told = segmenter.features_of(rgb)
            yield {"rays": shard.directions[None], **{name: told[name] for name in SHARED}}, ray_mm.astype(np.float32)


def depth_heads(graph: Any) -> list[str]:
    """Names of the nodes of a depth head that stay in float32: its last merge and all that follows.

    In 8 bits that merge would blur the relief (AbsRel .073 instead of .071 after alignment), and be no faster.
    """
    touched: set[str] = set()
    exact = set()
    for node in graph.node:  # in the order of computation
        if "/merge4/" in node.name or touched.intersection(node.input):
            exact.add(node.name)
            touched.update(node.output)
    return sorted(exact)


def write_int8(source: Path, path: Path, feeds: Iterator[dict[str, Any]], precise: Callable[[Any], list[str]]) -> None:
    """Quantise an exported file, calibrated on `feeds`; `precise` names the nodes of its graph that stay in float32."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def get_next(self) -> dict[str, Any] | None:
            return next(feeds, None)

    prepared, partial = path.with_suffix(".prepared.onnx"), path.with_suffix(".part.onnx")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # This also widens weights that are stored in 16 bits, which the quantiser would not recognise.
            quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
            quantize_static(
                str(prepared),
                str(partial),
                Reader(),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
                op_types_to_quantize=list(OPERATORS),
                nodes_to_exclude=precise(graph := onnx.load(str(prepared)).graph),
                extra_options={"TensorQuantOverrides": _seven_bits(graph)},
            )
        partial.replace(path)
    finally:
        for left in (prepared, partial):
            left.unlink(missing_ok=True)


def precise_nodes(graph: Any) -> list[str]:
    """Names of the nodes that stay in float32: the first convolutions, heads, and what depends on heads or state."""
    weights = {tensor.name: tensor.dims for tensor in graph.initializer}
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    heads = [node for node in convolutions if weights.get(node.input[1], [0])[0] == 1]
    exact = {node.name for node in heads}
    depth: dict[str, int] = {}  # convolutions between the picture and a value, on the longest way
    for node in graph.node:  # in the order of computation
        here = max((depth.get(name, 0) for name in node.input), default=0) + (node.op_type == "Conv")
        depth.update(dict.fromkeys(node.output, here))
        if node.op_type == "Conv" and here <= EXACT:
            exact.add(node.name)
    touched = {value.name for value in graph.input if value.name.startswith("state_")}
    touched |= {name for node in heads for name in node.output}
    for node in graph.node:
        if touched.intersection(node.input):
            exact.add(node.name)
            touched.update(node.output)
    return sorted(exact)


def _seven_bits(graph: Any) -> dict[str, list[dict[str, Any]]]:
    """Weights of convolutions that mix channels; depth-wise ones are summed in 32 bits everywhere."""
    mixing = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 4 and tensor.dims[1] > 1}
    weights = {node.input[1] for node in graph.node if node.op_type == "Conv"}
    return {name: [{"axis": 0, "reduce_range": True}] for name in sorted(mixing & weights)}


def _feeds(session: Session, pictures: Iterable[np.ndarray]) -> Iterator[dict[str, Any]]:
    """Each picture as the first frame of a stream and again as its second, so that layers see both kinds of state."""
    nothing = _no_state(session)
    for picture in pictures:
        feed = {"image": picture[None], **nothing}
        yield feed
        if nothing:
            told = session.run(feed, [name.replace("state_", "next_", 1) for name in nothing])
            yield {"image": picture[None], **{name: told[name.replace("state_", "next_", 1)] for name in nothing}}


def _no_state(session: Session) -> dict[str, np.ndarray]:
    return {
        name: np.zeros((1, *(n or 1 for n in shape[1:])), dtype)
        for name, shape, dtype in session.inputs
        if name != "image"
    }


def choose(sources: Sequence[Source], count: int, seed: int) -> list[Picture]:
    """Some pictures of some sources."""
    pictures, _ = gather(sources)
    chosen = np.random.default_rng(seed).choice(len(pictures), min(count, len(pictures)), replace=False)
    return [pictures[i] for i in chosen]


def squeezed(picture: Picture, size: int) -> np.ndarray:
    """A picture at the network's size."""
    return np.asarray(cv2.resize(picture.rgb(), (size, size), interpolation=cv2.INTER_AREA))


@dataclass(frozen=True)
class Comparison:
    """An 8-bit file beside the one it was made from, on pictures that were not used for calibration."""

    bytes_ratio: float
    speed_ratio: float
    dice_full: float
    dice_int8: float
    agreement: float
    pictures: int
    data: str

    def lines(self) -> list[str]:
        """What a user should read."""
        return [
            f"int8: {self.bytes_ratio:.2f} x the bytes and {self.speed_ratio:.2f} x the time per picture "
            "(network alone, two threads, this processor)",
            f"int8: mean Dice {self.dice_int8:.3f} instead of {self.dice_full:.3f}, Dice between both masks "
            f"{self.agreement:.3f} ({self.pictures} pictures of {self.data})",
        ]


def compare_int8(full: Path, small: Path, sources: Sequence[Source], size: int, count: int = 200) -> Comparison:
    """How much smaller, faster and worse the 8-bit file is, both run alternately on the same pictures."""
    sessions = {"full": open_session(full), "small": open_session(small)}
    nothing = _no_state(sessions["full"])
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    scores: dict[str, list[float]] = {"full": [], "small": [], "agreement": []}
    chosen = choose(sources, count, seed=1)
    for picture in chosen:
        image = squeezed(picture, size)
        truth = cv2.resize(picture.mask(), (size, size), interpolation=cv2.INTER_AREA) >= 128
        masks = {}
        for name, session in sessions.items():
            started = time.perf_counter()
            masks[name] = session.run({**nothing, "image": image[None]})["probability"][0, 0] >= 0.5
            seconds[name].append(time.perf_counter() - started)
            if truth.any():
                scores[name].append(dice(truth, masks[name]))
        if masks["full"].any() or masks["small"].any():
            scores["agreement"].append(dice(masks["full"], masks["small"]))
    means = {name: float(np.mean(values)) if values else float("nan") for name, values in scores.items()}
    return Comparison(
        bytes_ratio=small.stat().st_size / full.stat().st_size,
        speed_ratio=float(np.median(seconds["small"]) / np.median(seconds["full"])),
        dice_full=means["full"],
        dice_int8=means["small"],
        agreement=means["agreement"],
        pictures=len(chosen),
        data=", ".join(source.label for source in sources),
    )
