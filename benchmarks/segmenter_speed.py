"""Speed of the shipped segmenter from a 1920x1080 frame to a full-size mask, beside the published PNS+ exported alike.

    python benchmarks/segmenter_speed.py [--rounds 10] [--threads 2] [--quick]

Every contestant gets 1920x1080 uint8 frames and ends with a result of that size: resizing, normalisation and the way
back count for all of them. They run in one process, in turn, so that a busy machine slows all alike. In its turn each
draws five masks, as many as PNS+ draws at once, since frames follow one another in a video: a single one would find the
processor's caches full of another network. Medians and ratios are printed. `--quick` runs one round.

PNS+ (Res2Net-50, 448x256, random weights, which cost what trained ones cost) is used in two ways:

streaming   a mask for each frame as it arrives, which is how ours is used. The published network has no state, so its
            whole window, the anchor and five frames, runs again for every frame.
clip-wise   a recorded clip: six frames in, five masks out at once, and the time is divided by five. No mask is there
            before its window is full.

The Depth Anything V2 small architecture (ViT-S/14 with a DPT head, random weights) runs at 518x518, less than its own
rule for a wide frame (924x518), and is compared with segmenter and depth together. The peers need
`pip install 'polypscope[bench]'`; what is not installed is left out and said.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from polypscope.records import Camera
from polypscope.records.errors import PolypscopeError
from polypscope.runtime.backends import Session, open_session
from polypscope.runtime.depth import DepthEstimator
from polypscope.runtime.segmenter import Segmenter

WIDTH, HEIGHT = 1920, 1080
PNS_WIDTH, PNS_HEIGHT, PNS_FRAMES = 448, 256, 5
SIDE = 518  # of Depth Anything's input

Frames = list[np.ndarray]


@dataclass(frozen=True)
class Contestant:
    """One way to get a result; `step` yields `results` of them."""

    name: str
    step: Callable[[], object]
    results: int = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one round, to see that everything runs")
    options = parser.parse_args()
    cv2.setNumThreads(options.threads)
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8) for _ in range(6)]
    contestants = _ours(frames, options.threads)
    with tempfile.TemporaryDirectory() as folder:
        contestants += _peers(frames, Path(folder), options.threads)
        for contestant in contestants:
            contestant.step()
        seconds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
        for _ in range(1 if options.quick else options.rounds):
            for contestant in contestants:
                started = time.perf_counter()
                for _ in range(PNS_FRAMES // contestant.results):
                    contestant.step()
                seconds[contestant.name].append((time.perf_counter() - started) / PNS_FRAMES)
    _report(seconds)


def _report(seconds: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    base = medians["segmenter"]
    print(f"{'':34}  median ms  best ms  frames/s  x segmenter")
    for name, values in seconds.items():
        middle = medians[name]
        print(f"{name:34} {middle * 1e3:10.1f} {min(values) * 1e3:8.1f} {1 / middle:9.1f} {middle / base:12.2f}")
    for name, peer, limit in (
        ("segmenter", "PNS+, streaming", "at least 8"),
        ("segmenter", "PNS+, clip-wise", "at least 8"),
        ("segmenter + depth", "Depth Anything V2 S", "at least 10"),
        ("segmenter + depth", "segmenter", "at least 0.67"),
    ):
        if name in medians and peer in medians:
            print(f"{name} is {medians[peer] / medians[name]:.2f} x as fast as {peer} (goal: {limit})")
    print(f"peak memory of this process, all contestants loaded: {_peak_mb():.0f} MB")


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _ours(frames: Frames, threads: int) -> list[Contestant]:
    """The shipped models: frame in, mask at 1920x1080 out."""
    turn = count()

    def masks(segmenter: Segmenter) -> Callable[[], object]:
        return lambda: segmenter.step(frames[next(turn) % len(frames)]).at_least(segmenter.card.threshold)

    segmenter = Segmenter.load(threads=threads)
    rows = [Contestant("segmenter", masks(segmenter))]
    rows[0].step()
    print(
        f"segmenter: {segmenter.card.bytes:,} bytes; memory of the process after its first frame: {_peak_mb():.0f} MB"
    )
    try:
        shared = Segmenter.load(threads=threads)
        ranger = DepthEstimator.load(shared, threads=threads)
        camera = Camera.from_fov(WIDTH, HEIGHT, 110)

        def both() -> None:
            frame = frames[next(turn) % len(frames)]
            shared.step(frame).at_least(shared.card.threshold)
            ranger.depth(frame, camera)

        rows.append(Contestant("segmenter + depth", both))
    except PolypscopeError as error:
        print(f"depth left out: {error}")
    try:
        rows.append(Contestant("segmenter, OpenVINO", masks(Segmenter.load(threads=threads, provider="openvino"))))
    except PolypscopeError as error:
        print(f"OpenVINO left out: {error}")
    return rows


def _peers(frames: Frames, folder: Path, threads: int) -> list[Contestant]:
    """PNS+ as published and, where possible, the Depth Anything V2 small architecture, exported to ONNX."""
    try:
        import torch
    except ImportError as error:
        print(f"peers left out: {error}")
        return []
    torch.set_num_threads(threads)
    path = folder / "pns_plus.onnx"
    _export_pns_plus(path)
    print(f"PNS+ (Res2Net-50), exported alike: {path.stat().st_size:,} bytes")
    session = open_session(path, threads)
    rows = [
        Contestant("PNS+, streaming", _pns_streaming(session, frames)),
        Contestant("PNS+, clip-wise", _pns_clip_wise(session, frames), PNS_FRAMES),
    ]
    try:
        other = open_session(path, threads, "openvino")
        rows.append(Contestant("PNS+, streaming, OpenVINO", _pns_streaming(other, frames)))
    except PolypscopeError as error:
        print(f"PNS+ with OpenVINO left out: {error}")
    large = folder / "depth_anything.onnx"
    if _export_depth_anything(large):
        print(f"Depth Anything V2 S, exported alike: {large.stat().st_size:,} bytes")
        rows.append(Contestant("Depth Anything V2 S", _depth_anything(open_session(large, threads), frames)))
    return rows


def _pns_small(frame: np.ndarray) -> np.ndarray:
    return np.asarray(cv2.resize(frame, (PNS_WIDTH, PNS_HEIGHT), interpolation=cv2.INTER_LINEAR))


def _full_size(values: np.ndarray) -> np.ndarray:
    return np.asarray(cv2.resize(values, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR))


def _pns_streaming(session: Session, frames: Frames) -> Callable[[], object]:
    """One new frame is squeezed, the whole window runs, the newest map is kept."""
    turn = count()
    window = [_pns_small(frame) for frame in frames[: 1 + PNS_FRAMES]]

    def step() -> np.ndarray:
        window[1:] = [*window[2:], _pns_small(frames[next(turn) % len(frames)])]
        maps = session.run({"image": np.stack(window)[None]}, ["probability"])["probability"]
        return _full_size(maps[0, -1, 0]) >= 0.5

    return step


def _pns_clip_wise(session: Session, frames: Frames) -> Callable[[], object]:
    """Five new frames are squeezed (the anchor was before), the window runs once, all five maps are kept."""
    anchor = _pns_small(frames[0])

    def step() -> list[np.ndarray]:
        window = [anchor, *(_pns_small(frame) for frame in frames[1 : 1 + PNS_FRAMES])]
        maps = session.run({"image": np.stack(window)[None]}, ["probability"])["probability"]
        return [_full_size(values) >= 0.5 for values in maps[0, :, 0]]

    return step


def _depth_anything(session: Session, frames: Frames) -> Callable[[], object]:
    turn = count()

    def step() -> np.ndarray:
        small = cv2.resize(frames[next(turn) % len(frames)], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
        return _full_size(session.run({"image": np.asarray(small)[None]})["depth"][0])

    return step


def _export_pns_plus(path: Path) -> None:
    import torch
    from torch import Tensor, nn

    from polypscope.models.registry import create

    class Graph(nn.Module):
        """As ours is exported: pixels in, probability out."""

        def __init__(self) -> None:
            super().__init__()
            self.model = create("pns_plus")

        def forward(self, image: Tensor) -> Tensor:
            return self.model(image.permute(0, 1, 4, 2, 3).float() / 255).sigmoid()

    example = torch.zeros(1, 1 + PNS_FRAMES, PNS_HEIGHT, PNS_WIDTH, 3, dtype=torch.uint8)
    _export(Graph().eval(), example, path, "probability")


def _export_depth_anything(path: Path) -> bool:
    import torch
    from torch import Tensor, nn

    try:
        from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config
    except ImportError:
        print("Depth Anything V2 left out: transformers is not installed")
        return False
    backbone = Dinov2Config(
        hidden_size=384, num_attention_heads=6, num_hidden_layers=12, image_size=SIDE, patch_size=14,
        out_features=["stage3", "stage6", "stage9", "stage12"], reshape_hidden_states=False, apply_layernorm=True,
    )  # fmt: skip
    config = DepthAnythingConfig(
        backbone_config=backbone, neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=64,
        reassemble_hidden_size=384,
    )  # fmt: skip

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = DepthAnythingForDepthEstimation(config)

        def forward(self, image: Tensor) -> Tensor:
            x = image.permute(0, 3, 1, 2).float() / 255
            return self.model((x - 0.45) / 0.225).predicted_depth

    _export(Graph().eval(), torch.zeros(1, SIDE, SIDE, 3, dtype=torch.uint8), path, "depth")
    return True


def _export(graph: Any, example: Any, path: Path, output: str) -> None:
    import torch

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph, (example,), str(path), input_names=["image"], output_names=[output], opset_version=18, dynamo=False
        )


if __name__ == "__main__":
    main()
