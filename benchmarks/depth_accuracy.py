"""Accuracy of the shipped depth head on simulated colons and polyps that it never saw.

    python benchmarks/depth_accuracy.py [--sequences 12] [--frames 6] [--card src/…/weights/polypscope-depth.json]

AbsRel = mean of |predicted - true| / true over all pixels of a frame, averaged over frames: metric, and after the
prediction was scaled by the median ratio. Seeds below 5000 and the thirty polyp models were never trained on. With
--card, the figures become the scores on the depth head's card.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from polypscope.runtime.cards import Score, add_scores
from polypscope.runtime.depth import DepthEstimator
from polypscope.runtime.segmenter import Segmenter
from polypscope.simulator import sequence

PROTOCOL = "mean over frames of colons and polyps that were never trained on (benchmarks/depth_accuracy.py)"
METRICS = ("AbsRel", "AbsRel, aligned by medians", "AbsRel on polyps", "share of pixels within one sigma")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=12, help="sequences per row")
    parser.add_argument("--frames", type=int, default=6, help="frames of each, spread over 4 seconds")
    parser.add_argument("--card", type=Path, help="model card (JSON) to write the figures into")
    options = parser.parse_args()
    scores = []
    ranger = DepthEstimator.load(Segmenter.load())
    print("lens      field of view  style      AbsRel  aligned  polyp only  within 1 sigma  frames")
    for lens, fov, style in (
        ("pinhole", (60.0, 80.0), "clean"),
        ("pinhole", (80.0, 110.0), "clean"),
        ("pinhole", (110.0, 140.0), "clean"),
        ("fisheye", (100.0, 140.0), "clean"),
        ("pinhole", (70.0, 120.0), "clinical"),
    ):
        rows = []
        for index in range(options.sequences):
            made = sequence(
                78, index * 4, frames=100, fov_deg=fov, lens=lens, style=style, width=384, height=288, negatives=0.0
            )
            made.poses = made.poses[np.linspace(0, 99, options.frames).astype(int)]
            for item in made:
                rows.append(_frame(ranger, item, made.camera))
        mean = np.nanmean(np.array(rows), axis=0)
        view = f"{fov[0]:.0f}-{fov[1]:.0f} deg"
        print(
            f"{lens:9} {view:14} {style:9} {mean[0]:7.4f} {mean[1]:8.4f} {mean[2]:11.4f} {mean[3]:15.3f} {len(rows):7}"
        )
        data = f"simulated, {style}, {lens}, {view}"
        scores += [
            Score(data=data, metric=metric, value=round(float(value), 4), protocol=PROTOCOL, images=len(rows))
            for metric, value in zip(METRICS, mean, strict=True)
        ]
    if options.card is not None:
        add_scores(options.card, scores)


def _frame(ranger: DepthEstimator, item, camera) -> tuple[float, float, float, float]:  # type: ignore[no-untyped-def]
    truth = item.truth.depth.values
    found = ranger.depth(item.frame.rgb, camera)
    valid = np.isfinite(truth) & np.isfinite(found.values)
    t, p, s = truth[valid], found.values[valid], found.sigma[valid]
    error = np.abs(p - t) / t
    aligned = np.abs(p * np.median(t / p) - t) / t
    polyp = (item.truth.instances > 0)[valid]
    return (
        float(error.mean()),
        float(aligned.mean()),
        float(error[polyp].mean()) if polyp.any() else float("nan"),
        float((np.abs(p - t) < s).mean()),
    )


if __name__ == "__main__":
    main()
