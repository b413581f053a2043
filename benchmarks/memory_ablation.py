"""Does the streaming state help? The same weights with the state kept and with the state off, frame by frame.

    python benchmarks/memory_ablation.py --simulated 12 [--clinicdb ../shared/data/cvc-clinicdb] [--bound]

Simulated video: mean Dice over frames with a polyp, and the mean IoU change, 1 - IoU(prediction t, prediction t-1)
minus the same of the truth, which is the flicker that motion does not explain; and how many of the frames without a
polyp get an outline, since a memory that holds on to polyps has its price. Seeds below 5000 were never trained on.
CVC-ClinicDB: the same over its 29 sequences of sampled frames. Intervals draw whole sequences.
--bound: what a memory could give that knows exactly where each place was before. The logits of earlier frames are moved
by the simulator's own depth and poses, places that were hidden then are left out, and the best of several spans and
weights is shown, chosen with the truth in hand: what averaging earlier logits could give at the most.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np

from polypscope.evaluation.bootstrap import paired_test
from polypscope.evaluation.segmentation.overlap import dice, iou
from polypscope.geometry.cameras import project, rays
from polypscope.records import Camera
from polypscope.runtime.segmenter import Segmenter
from polypscope.simulator import SimulatedSequence, sequence

Pair = tuple[np.ndarray, np.ndarray]
Figures = dict[str, dict[str, np.ndarray]]  # by figure: `on`, `off` and `clip`, one value a frame
SPANS = ((1, 2, 3), (3, 6, 9, 12), (5, 10, 15, 20))  # frames before the present one that are averaged in
FIGURES = {"dice": "mean Dice", "change": "unexplained IoU change", "empty": "empty frames outlined"}
WEIGHTS = (0.1, 0.3, 0.6, 1.0)  # what each of them counts, the present one being 1


def sequences(count: int, frames: int, style: str, seed: int) -> Iterator[SimulatedSequence]:
    """Simulated sequences, each of another colon."""
    for index in range(count):
        yield sequence(
            seed, index * 4, frames=frames, style=style, polyps="models", negatives=0.0, width=384, height=288
        )


def simulated(count: int, frames: int, style: str, seed: int) -> Iterator[list[Pair]]:
    """Rendered clips as lists of (rgb, truth)."""
    for made in sequences(count, frames, style, seed):
        yield [(item.frame.rgb, item.truth.instances > 0) for item in made]


def clinicdb(root: Path) -> Iterator[list[Pair]]:
    """Sequences in order."""
    from polypscope.io.images import read_grey, read_rgb
    from polypscope.io.paths import list_files

    for folder in sorted(root.glob("seq*")):
        yield [
            (read_rgb(path), read_grey(folder / "masks" / f"{path.stem}.png") > 128)
            for path in list_files(folder / "images")
        ]


def measure(clips: Iterable[list[Pair]], segmenter: Segmenter) -> Figures:
    """The three figures frame by frame, with the state on and off, and the `clip` that each frame belongs to."""
    found: dict[str, dict[str, list[float]]] = {name: {"on": [], "off": [], "clip": []} for name in FIGURES}
    for number, clip in enumerate(clips):
        segmenter.reset()
        before: dict[str, np.ndarray] = {}
        truth_before = None
        for rgb, truth in clip:
            masks = {
                "off": segmenter.predict(rgb).at_least(0.5).values,
                "on": segmenter.step(rgb).at_least(0.5).values,
            }
            if truth.mean() > 0.001:
                found["dice"]["clip"].append(number)
                for state, mask in masks.items():
                    found["dice"][state].append(dice(truth, mask))
            if not truth.any():
                found["empty"]["clip"].append(number)
                for state, mask in masks.items():
                    found["empty"][state].append(float(mask.any()))
            if truth_before is not None and truth.any():
                moved = 1 - iou(truth, truth_before)
                found["change"]["clip"].append(number)
                for state, mask in masks.items():
                    found["change"][state].append(max(0.0, 1 - iou(mask, before[state]) - moved))
            before, truth_before = masks, truth
    return {name: {key: np.array(values) for key, values in columns.items()} for name, columns in found.items()}


def bound(count: int, frames: int, style: str, seed: int, segmenter: Segmenter) -> str:
    """Dice gained by averaging logits of earlier frames along exact correspondences, at the best span and weight."""
    found: dict[tuple[tuple[int, ...], float], list[float]] = {}
    off: list[float] = []
    clips: list[int] = []
    for index, made in enumerate(sequences(count, frames, style, seed)):
        seen: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # logits, depth, pose
        segmenter.reset()
        for item in made:
            segmenter.step(item.frame.rgb)
            own = segmenter.state()["state_beliefs"][0, 0, 0]
            camera = made.camera.resized(own.shape[1], own.shape[0])
            depth = cv2.resize(item.truth.depth.values, own.shape[::-1], interpolation=cv2.INTER_NEAREST)
            seen.append((own, depth, item.pose))
            truth = item.truth.instances > 0
            if truth.mean() <= 0.001:
                continue
            off.append(dice(truth, _drawn(own, truth.shape)))
            clips.append(index)
            for span in SPANS:
                earlier = [_moved(camera, seen[-1], seen[-1 - back]) for back in span if back < len(seen)]
                for weight in WEIGHTS:
                    total = own + weight * sum(known * logits for logits, known in earlier)
                    mean = total / (1 + weight * sum(known for _, known in earlier))
                    found.setdefault((span, weight), []).append(dice(truth, _drawn(mean, truth.shape)))
    best = max(found, key=lambda setting: np.mean(found[setting]))
    test = paired_test(np.array(found[best]), np.array(off), clips)
    interval = f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}]"
    about = f"frames {', '.join(f'-{back}' for back in best[0])} at weight {best[1]:g}"
    return f"{np.mean(found[best]):10.4f} {np.mean(off):8.4f}   {interval}  {about}"


def _moved(
    camera: Camera, now: tuple[np.ndarray, np.ndarray, np.ndarray], then: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of an earlier frame where this frame sees the same places, and 1 where it saw them, else 0."""
    directions = rays(camera)
    points = directions / directions[..., 2:] * np.nan_to_num(now[1], nan=30.0)[..., None]
    world = points @ now[2][:3, :3].T + now[2][:3, 3]
    there = (world - then[2][:3, 3]) @ then[2][:3, :3]
    pixels = project(camera, there.reshape(-1, 3)).reshape((*points.shape[:2], 2)).astype(np.float32)
    logits, depth = (
        cv2.remap(np.nan_to_num(values).astype(np.float32), pixels, None, cv2.INTER_LINEAR)  # type: ignore[call-overload]
        for values in then[:2]
    )
    inside = ((pixels >= 0) & (pixels <= (camera.width - 1, camera.height - 1))).all(-1)
    known = inside & (np.abs(depth - there[..., 2]) < 0.08 * there[..., 2])
    return logits, known.astype(np.float32)


def _drawn(logits: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return np.asarray(cv2.resize(logits, shape[::-1], interpolation=cv2.INTER_LINEAR) >= 0)


def joined(first: Figures, second: Figures) -> Figures:
    """The figures of two sets of clips as those of one."""
    later = 1 + max(int(columns["clip"].max()) for columns in first.values() if len(columns["clip"]))
    moved = {name: {**columns, "clip": columns["clip"] + later} for name, columns in second.items()}
    return {
        name: {key: np.concatenate([values, moved[name][key]]) for key, values in columns.items()}
        for name, columns in first.items()
    }


def show(name: str, found: Figures) -> None:
    """A row for each figure that has sequences to draw from."""
    for figure, label in FIGURES.items():
        on, off, clips = (found[figure][key] for key in ("on", "off", "clip"))
        if len(np.unique(clips)) < 2:
            continue
        test = paired_test(on, off, clips.tolist())
        interval = f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}]"
        print(f"{name:22} {label:23} {on.mean():10.4f} {off.mean():8.4f}   {interval}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", type=int, default=8, help="sequences of each style")
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--seed", type=int, default=77, help="of the simulated sequences")
    parser.add_argument("--clinicdb", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--bound", action="store_true", help="also what exact correspondences could give")
    options = parser.parse_args()
    segmenter = Segmenter.load(options.model)
    sets: dict[str, Iterable[list[Pair]]] = {
        f"simulated, {style}": simulated(options.simulated, options.frames, style, options.seed)
        for style in ("clean", "clinical")
        if options.simulated
    }
    if options.clinicdb:
        sets["CVC-ClinicDB"] = clinicdb(options.clinicdb)
    print(f"{'':22} {'':23}   state on      off   on - off, 95 % interval")
    rendered = []
    for name, clips in sets.items():
        found = measure(clips, segmenter)
        show(name, found)
        if name.startswith("simulated"):
            rendered.append(found)
    if len(rendered) > 1:
        show("simulated, both", joined(*rendered))
    for style in ("clean", "clinical") if options.bound else ():
        row = bound(options.simulated, options.frames, style, options.seed, segmenter)
        print(f"{f'simulated, {style}':22} {'mean Dice, exact moves':23} {row}", flush=True)


if __name__ == "__main__":
    main()
