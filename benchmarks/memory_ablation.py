"""Does the streaming state help? The same weights with the state kept and with the state off, frame by frame.

    python benchmarks/memory_ablation.py --simulated 12 [--clinicdb ../shared/data/cvc-clinicdb]

Simulated video: mean Dice over frames with a polyp, and the mean IoU change, 1 - IoU(prediction t, prediction t-1)
minus the same of the truth, which is the flicker that motion does not explain. Seeds below 5000 were never trained on.
CVC-ClinicDB: mean Dice over its 29 sequences of sampled frames.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from polypscope.evaluation.segmentation.overlap import dice, iou
from polypscope.runtime.segmenter import Segmenter

Pair = tuple[np.ndarray, np.ndarray]


def simulated(count: int, frames: int, style: str) -> Iterator[list[Pair]]:
    """Rendered clips as lists of (rgb, truth)."""
    from polypscope.simulator import sequence

    for index in range(count):
        made = sequence(
            77, index * 4, frames=frames, style=style, polyps="models", negatives=0.0, width=384, height=288
        )
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


def measure(clips: Iterable[list[Pair]], segmenter: Segmenter) -> dict[str, tuple[float, float]]:
    """(Dice, IoU change) with the state on and off."""
    scores: dict[str, list[float]] = {"on": [], "off": []}
    changes: dict[str, list[float]] = {"on": [], "off": []}
    for clip in clips:
        segmenter.reset()
        before: dict[str, np.ndarray] = {}
        truth_before = None
        for rgb, truth in clip:
            found = {
                "off": segmenter.predict(rgb).at_least(0.5).values,
                "on": segmenter.step(rgb).at_least(0.5).values,
            }
            for name, mask in found.items():
                if truth.mean() > 0.001:
                    scores[name].append(dice(truth, mask))
                if name in before and truth_before is not None and truth.any():
                    moved = 1 - iou(truth, truth_before)
                    changes[name].append(max(0.0, 1 - iou(mask, before[name]) - moved))
                before[name] = mask
            truth_before = truth
    return {name: (float(np.mean(scores[name])), float(np.mean(changes[name]))) for name in scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", type=int, default=8, help="sequences of each style")
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--clinicdb", type=Path)
    parser.add_argument("--model")
    options = parser.parse_args()
    segmenter = Segmenter.load(options.model)
    sets: dict[str, Iterable[list[Pair]]] = {
        f"simulated, {style}": simulated(options.simulated, options.frames, style)
        for style in ("clean", "clinical")
        if options.simulated
    }
    if options.clinicdb:
        sets["CVC-ClinicDB"] = clinicdb(options.clinicdb)
    print(f"{'':22} state   mean Dice   unexplained IoU change")
    for name, clips in sets.items():
        for state, (score, change) in measure(clips, segmenter).items():
            print(f"{name:22} {state:5} {score:11.4f} {change:13.4f}")


if __name__ == "__main__":
    main()
