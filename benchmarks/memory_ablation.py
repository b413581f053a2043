"""Does the streaming state help? The same weights with the state kept and with the state off, frame by frame.

    python benchmarks/memory_ablation.py --simulated 12 [--clinicdb ../shared/data/cvc-clinicdb]

Simulated video: mean Dice over frames with a polyp, and the mean IoU change, 1 - IoU(prediction t, prediction t-1)
minus the same of the truth, which is the flicker that motion does not explain. Seeds below 5000 were never trained on.
CVC-ClinicDB: the same over its 29 sequences of sampled frames. Intervals draw whole sequences.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from polypscope.evaluation.bootstrap import paired_test
from polypscope.evaluation.segmentation.overlap import dice, iou
from polypscope.runtime.segmenter import Segmenter

Pair = tuple[np.ndarray, np.ndarray]


def simulated(count: int, frames: int, style: str, seed: int) -> Iterator[list[Pair]]:
    """Rendered clips as lists of (rgb, truth)."""
    from polypscope.simulator import sequence

    for index in range(count):
        made = sequence(
            seed, index * 4, frames=frames, style=style, polyps="models", negatives=0.0, width=384, height=288
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


def measure(clips: Iterable[list[Pair]], segmenter: Segmenter) -> dict[str, dict[str, np.ndarray]]:
    """Dice and IoU change frame by frame, with the state on and off, and the `clip` that each frame belongs to."""
    found: dict[str, dict[str, list[float]]] = {name: {"on": [], "off": [], "clip": []} for name in ("dice", "change")}
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
            if truth_before is not None and truth.any():
                moved = 1 - iou(truth, truth_before)
                found["change"]["clip"].append(number)
                for state, mask in masks.items():
                    found["change"][state].append(max(0.0, 1 - iou(mask, before[state]) - moved))
            before, truth_before = masks, truth
    return {name: {key: np.array(values) for key, values in columns.items()} for name, columns in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", type=int, default=8, help="sequences of each style")
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--seed", type=int, default=77, help="of the simulated sequences")
    parser.add_argument("--clinicdb", type=Path)
    parser.add_argument("--model")
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
    for name, clips in sets.items():
        found = measure(clips, segmenter)
        for figure, label in (("dice", "mean Dice"), ("change", "unexplained IoU change")):
            on, off = found[figure]["on"], found[figure]["off"]
            test = paired_test(on, off, found[figure]["clip"].tolist())
            interval = f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}]"
            print(f"{name:22} {label:23} {on.mean():10.4f} {off.mean():8.4f}   {interval}", flush=True)


if __name__ == "__main__":
    main()
