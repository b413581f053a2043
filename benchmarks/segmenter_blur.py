"""How much outlines suffer when fine detail is missing, as in older or enlarged recordings.

    python benchmarks/segmenter_blur.py ../shared/data/polypgen/C6
    python benchmarks/segmenter_blur.py ../shared/data/kvasir-seg --only ../shared/data/splits/kvasir_pranet_test.txt

Every picture with a polyp is blurred by a Gaussian of so many pixels at 320 pixels width, and outlined once. Mean Dice
at threshold 0.5 and original size, and how many pictures stay below 0.3: those polyps are lost, not badly drawn.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import numpy as np

from polypscope.evaluation.segmentation.overlap import dice
from polypscope.runtime.segmenter import Segmenter
from polypscope.training.sources import list_pairs, read_stems

SIGMAS_PX = (0.0, 1.0, 2.0, 3.0)


def blurred(rgb: np.ndarray, sigma_px: float) -> np.ndarray:
    """The picture (H, W, 3) blurred by `sigma_px` of a version that is 320 pixels wide."""
    return cv2.GaussianBlur(rgb, (0, 0), sigma_px * rgb.shape[1] / 320) if sigma_px else rgb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="folder with images/ and masks/")
    parser.add_argument("--only", type=Path, help="text file with the names to use, one per line")
    parser.add_argument("--model", help="name or path; the shipped segmenter if not given")
    options = parser.parse_args()
    segmenter = Segmenter.load(options.model)
    scores: dict[float, list[float]] = {sigma: [] for sigma in SIGMAS_PX}
    for picture in list_pairs(options.root, only=read_stems(options.only)):
        rgb, truth = picture.rgb(), picture.mask() > 0
        if truth.any():
            for sigma, found in scores.items():
                found.append(dice(truth, segmenter.predict(blurred(rgb, sigma)).at_least(0.5).values))
    print("blur px   mean Dice   below 0.3   pictures")
    for sigma, found in scores.items():
        print(f"{sigma:7.1f} {np.mean(found):11.4f} {sum(score < 0.3 for score in found):11d} {len(found):10d}")


if __name__ == "__main__":
    main()
