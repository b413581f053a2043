r"""How much outlines suffer when pictures are worse than those of the data set: soft, tinted, dark, small, compressed.

    python benchmarks/segmenter_hardship.py ../shared/data/polypgen/C6
    python benchmarks/segmenter_hardship.py ../shared/data/kvasir-seg \
        --only ../shared/data/splits/kvasir_pranet_test.txt

Every picture with a polyp is spoilt in each way and outlined, by one look or, with --careful, as `polypscope predict`
does. Blur is a Gaussian of so many pixels at 320 pixels width. Mean Dice at threshold 0.5 and original size, and how
many pictures stay below 0.3: those polyps are lost, not badly drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from polypscope.evaluation.segmentation.overlap import dice
from polypscope.runtime.segmenter import Segmenter
from polypscope.training.sources import list_pairs, read_stems

Pair = tuple[np.ndarray, np.ndarray]


def blurred(rgb: np.ndarray, truth: np.ndarray, sigma_px: float) -> Pair:
    """Soft, by `sigma_px` of a version that is 320 pixels wide."""
    return cv2.GaussianBlur(rgb, (0, 0), sigma_px * rgb.shape[1] / 320), truth


def tinted(rgb: np.ndarray, truth: np.ndarray) -> Pair:
    """Bluer, as another processor balances white."""
    return np.clip(rgb * np.array([0.92, 1.0, 1.2]), 0, 255).astype(np.uint8), truth


def darkened(rgb: np.ndarray, truth: np.ndarray) -> Pair:
    """With another tone curve."""
    return (255 * (rgb / 255) ** 1.5).astype(np.uint8), truth


def further(rgb: np.ndarray, truth: np.ndarray, scale: float = 0.55) -> Pair:
    """As seen from nearly twice as far, with its own mirror image around it."""
    height, width = truth.shape
    small = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    mask = cv2.resize(truth.astype(np.uint8), small.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    rows, columns = height - small.shape[0], width - small.shape[1]
    margins = (rows // 2, rows - rows // 2, columns // 2, columns - columns // 2)
    wide = [cv2.copyMakeBorder(part, *margins, cv2.BORDER_REFLECT_101) for part in (small, mask)]
    return wide[0], wide[1] > 0


def compressed(rgb: np.ndarray, truth: np.ndarray) -> Pair:
    """Stored at half the size as a coarse JPEG, and enlarged again."""
    small = cv2.resize(rgb, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    coarse = cv2.imdecode(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 40])[1], cv2.IMREAD_COLOR)
    return cv2.resize(coarse, rgb.shape[1::-1], interpolation=cv2.INTER_LINEAR), truth


WAYS: dict[str, Callable[[np.ndarray, np.ndarray], Pair]] = {
    "as it is": lambda rgb, truth: (rgb, truth),
    "blurred, 1 px": partial(blurred, sigma_px=1.0),
    "blurred, 2 px": partial(blurred, sigma_px=2.0),
    "blurred, 3 px": partial(blurred, sigma_px=3.0),
    "bluer": tinted,
    "darker": darkened,
    "further away": further,
    "compressed": compressed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="folder with images/ and masks/")
    parser.add_argument("--only", type=Path, help="text file with the names to use, one per line")
    parser.add_argument("--model", help="name or path; the shipped segmenter if not given")
    parser.add_argument("--careful", action="store_true", help="look as `polypscope predict` does")
    options = parser.parse_args()
    segmenter = Segmenter.load(options.model)
    scores: dict[str, list[float]] = {way: [] for way in WAYS}
    for picture in list_pairs(options.root, only=read_stems(options.only)):
        rgb, truth = picture.rgb(), picture.mask() > 0
        if truth.any():
            for way, spoil in WAYS.items():
                seen, there = spoil(rgb, truth)
                found = segmenter.predict(np.ascontiguousarray(seen), options.careful)
                scores[way].append(dice(there, found.at_least(0.5).values))
    print("picture         mean Dice   below 0.3   pictures")
    for way, found in scores.items():
        print(f"{way:14} {np.mean(found):10.4f} {sum(score < 0.3 for score in found):11d} {len(found):10d}")


if __name__ == "__main__":
    main()
