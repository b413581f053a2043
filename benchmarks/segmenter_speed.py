"""Speed of the shipped segmenter from a 1920x1080 frame to a full-size mask, beside the published PNS+ exported alike.

    python benchmarks/segmenter_speed.py [--rounds 20] [--threads 2]

All contestants run in one process, in turn, so that a busy machine slows all of them; medians and ratios are printed.
PNS+ (Res2Net-50) has random weights, which cost what trained ones cost; it takes windows of six frames at 448x256 and
yields five maps, so its time is divided by five. The Depth Anything V2 small architecture (ViT-S/14 with a DPT head at
518x518) is run with random weights if `transformers` is installed. Needs the train extra for the peers.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from polypscope.records import Camera
from polypscope.records.errors import PolypscopeError
from polypscope.runtime.backends import open_session
from polypscope.runtime.depth import DepthEstimator
from polypscope.runtime.segmenter import Segmenter

Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (1080, 1920, 3), dtype=np.uint8) for _ in range(4)]
    contestants = dict(_ours(frames, options.threads))
    with tempfile.TemporaryDirectory() as folder:
        contestants.update(_peers(Path(folder), options.threads))
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for step, _ in contestants.values():
            step()
        for _ in range(options.rounds):
            for name, (step, share) in contestants.items():
                started = time.perf_counter()
                step()
                seconds[name].append((time.perf_counter() - started) / share)
    base = statistics.median(seconds["segmenter"])
    print(f"{'':34}  median ms  best ms  frames/s  x segmenter")
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(f"{name:34} {middle * 1e3:9.1f} {min(values) * 1e3:8.1f} {1 / middle:9.1f} {middle / base:11.2f}")
    card = Segmenter.load().card
    print(f"segmenter: {card.bytes:,} bytes; peak memory of this process, all contestants loaded: {_peak_mb():.0f} MB")


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _ours(frames: list[np.ndarray], threads: int) -> list[tuple[str, tuple[Step, int]]]:
    """The shipped models: frame in, mask at 1920x1080 out."""
    rows: list[tuple[str, tuple[Step, int]]] = []
    turn = iter(range(10**9))

    def masks(segmenter: Segmenter) -> Step:
        return lambda: segmenter.step(frames[next(turn) % len(frames)]).at_least(segmenter.card.threshold)

    rows.append(("segmenter", (masks(Segmenter.load(threads=threads)), 1)))
    print(f"memory after loading the segmenter: {_peak_mb():.0f} MB")
    try:
        shared = Segmenter.load(threads=threads)
        ranger = DepthEstimator.load(shared, threads=threads)
        camera = Camera.from_fov(1920, 1080, 110)

        def both() -> None:
            frame = frames[next(turn) % len(frames)]
            shared.step(frame).at_least(0.5)
            ranger.depth(frame, camera)

        rows.append(("segmenter + depth", (both, 1)))
    except PolypscopeError as error:
        print(f"depth left out: {error}")
    try:
        rows.append(("segmenter, OpenVINO", (masks(Segmenter.load(threads=threads, provider="openvino")), 1)))
    except PolypscopeError as error:
        print(f"OpenVINO left out: {error}")
    return rows


def _peers(folder: Path, threads: int) -> dict[str, tuple[Step, int]]:
    """PNS+ as published and, where possible, the Depth Anything V2 small architecture, exported to ONNX."""
    try:
        import torch

        from polypscope.models.registry import create
    except ImportError as error:
        print(f"peers left out: {error}")
        return {}
    rows: dict[str, tuple[Step, int]] = {}
    clip = torch.rand(1, 6, 3, 256, 448)
    path = _exported(create("pns_plus").eval(), clip, folder / "pns_plus.onnx")
    session = open_session(path, threads)
    feeds = {"x": clip.numpy()}
    rows["PNS+ (Res2Net-50), network alone"] = (lambda: session.run(feeds), 5)
    try:
        from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config
    except ImportError:
        print("Depth Anything V2 left out: transformers is not installed")
        return rows
    backbone = Dinov2Config(
        hidden_size=384, num_attention_heads=6, num_hidden_layers=12, image_size=518, patch_size=14,
        out_features=["stage3", "stage6", "stage9", "stage12"], reshape_hidden_states=False, apply_layernorm=True,
    )  # fmt: skip
    config = DepthAnythingConfig(
        backbone_config=backbone, neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=64,
        reassemble_hidden_size=384,
    )  # fmt: skip
    picture = torch.rand(1, 3, 518, 518)
    large = _exported(DepthAnythingForDepthEstimation(config).eval(), picture, folder / "depth_anything.onnx")
    other = open_session(large, threads)
    other_feeds = {"x": picture.numpy()}
    rows["Depth Anything V2 S, network alone"] = (lambda: other.run(other_feeds), 1)
    return rows


def _exported(model, example, path: Path) -> Path:  # type: ignore[no-untyped-def]
    import torch

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (example,), str(path), input_names=["x"], opset_version=18, dynamo=False)
    return path


if __name__ == "__main__":
    main()
