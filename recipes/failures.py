"""The picture of what the shipped segmenter fails on, from simulated frames only: docs/images/segmenter-failures.jpg.

    python recipes/failures.py [OUT.jpg]

Sixty sequences in clinical style that nothing was trained on, one frame of each in which a polyp covers half a percent
of the picture or more; shown are the four frames with the lowest Dice and four from the upper half.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cv2
import numpy as np

from polypscope.evaluation.segmentation.overlap import dice
from polypscope.runtime.segmenter import Segmenter
from polypscope.simulator import sequence

SEED, SEQUENCES, LEAST_SHARE = 78, 60, 0.005
TRUTH, FOUND = (70, 220, 90), (255, 255, 255)


def outlined(rgb: np.ndarray, mask: np.ndarray, shade: tuple[int, int, int]) -> None:
    contours, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(rgb, contours, -1, shade, 1, cv2.LINE_AA)


def looked_at(segmenter: Segmenter) -> list[tuple[float, np.ndarray]]:
    """(Dice, picture with outlines) of one frame of each sequence, worst first."""
    seen = []
    for index in range(SEQUENCES):
        made = sequence(
            SEED, index, frames=60, style="clinical", polyps="sampled", negatives=0.0, fov_deg=(80.0, 130.0)
        )
        for item in made.only(range(30, 60, 10)):
            truth = item.truth.instances > 0
            if truth.mean() < LEAST_SHARE:
                continue
            found = segmenter.predict(item.frame.rgb).at_least(0.5).values
            picture = item.frame.rgb.copy()
            outlined(picture, truth, TRUTH)
            outlined(picture, found, FOUND)
            score = dice(truth, found)
            cv2.putText(picture, f"Dice {score:.2f}", (8, 20), cv2.FONT_HERSHEY_SIMPLEX, 0.5, FOUND, 1, cv2.LINE_AA)
            seen.append((score, picture))
            break
    return sorted(seen, key=lambda pair: pair[0])


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/segmenter-failures.jpg")
    seen = looked_at(Segmenter.load())
    worst = [picture for _, picture in seen[:4]]
    good = [seen[int(q * (len(seen) - 1))][1] for q in (0.5, 0.65, 0.8, 0.95)]
    sheet = np.vstack([np.hstack(row) for row in (worst, good)])
    cv2.imwrite(str(out), sheet[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 88])
    scores = np.array([score for score, _ in seen])
    print(f"{len(seen)} frames, mean Dice {scores.mean():.3f}, {np.mean(scores < 0.5):.0%} below 0.5; {out}")


if __name__ == "__main__":
    main()
