"""Accuracy of the shipped depth head on simulated colons and polyps that it never saw.

    python benchmarks/depth_accuracy.py [--sequences 40] [--frames 4] [--card src/…/weights/polypscope-depth.json]
    python benchmarks/depth_accuracy.py --causes 90
    python benchmarks/depth_accuracy.py --course 30

AbsRel = mean of |predicted - true| / true over all pixels of a frame, averaged over frames: metric, and after the
prediction was scaled by the median ratio; of one look at each frame, and of a careful one, which averages the frame
and its mirror images. Seeds below 5000 and the thirty polyp models were never trained on. With --card, the figures
become the scores on the depth head's card. With --causes, nothing of this but what the error of the scale goes along
with, over that many other sequences: a slope of -0.2 on the size of vessels says that vessels twice as large make
everything look 13 % nearer, as they would to anybody who knows how large vessels usually are. With --course, how that
error changes in the course of a sequence: `geometry.scale` rests on it.
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
LOOKS = {"once": "", "careful": ", careful"}  # how a look is named in the table, and on the card
METRICS = ("AbsRel", "AbsRel, aligned by medians", "AbsRel on polyps", "share of pixels within one sigma")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=40, help="sequences per row, each of a colon of its own")
    parser.add_argument("--frames", type=int, default=4, help="frames of each, spread over 4 seconds")
    parser.add_argument("--card", type=Path, help="model card (JSON) to write the figures into")
    parser.add_argument("--causes", type=int, help="sequences to tell what the scale's error goes along with")
    parser.add_argument("--course", type=int, help="sequences to tell how the scale's error changes over time")
    options = parser.parse_args()
    scores = []
    ranger = DepthEstimator.load(Segmenter.load())
    if options.causes:
        causes(ranger, options.causes)
        return
    if options.course:
        course(ranger, options.course)
        return
    print("lens      field of view  style     look      AbsRel  aligned  polyp only  within 1 sigma  frames")
    for lens, fov, style in (
        ("pinhole", (60.0, 80.0), "clean"),
        ("pinhole", (80.0, 110.0), "clean"),
        ("pinhole", (110.0, 140.0), "clean"),
        ("fisheye", (100.0, 140.0), "clean"),
        ("pinhole", (70.0, 120.0), "clinical"),
    ):
        rows: dict[str, list[tuple[float, ...]]] = {look: [] for look in LOOKS}
        for index in range(options.sequences):
            made = sequence(
                78, index * 4, frames=100, fov_deg=fov, lens=lens, style=style, width=384, height=288, negatives=0.0
            )
            for item in made.only(np.linspace(0, 99, options.frames).astype(int)):
                for look, found in rows.items():
                    found.append(_frame(ranger, item, made.camera, look == "careful"))
        view = f"{fov[0]:.0f}-{fov[1]:.0f} deg"
        data = f"simulated, {style}, {lens}, {view}"
        for look, found in rows.items():
            mean = np.nanmean(np.array(found), axis=0)
            print(
                f"{lens:9} {view:14} {style:9} {look:8} {mean[0]:7.4f} {mean[1]:8.4f} {mean[2]:11.4f} "
                f"{mean[3]:15.3f} {len(found):7}"
            )
            scores += [
                Score(
                    data=data,
                    metric=metric + LOOKS[look],
                    value=round(float(value), 4),
                    protocol=PROTOCOL,
                    images=len(found),
                )
                for metric, value in zip(METRICS, mean, strict=True)
            ]
    if options.card is not None:
        add_scores(options.card, scores)


def causes(ranger: DepthEstimator, count: int) -> None:
    """Print the spread of the scale's error between sequences, and its regression on what varies between them."""
    names = ("size of vessels", "radius of the lumen", "lamps from the axis", "median depth")
    errors, rows = [], []
    for index in range(count):
        made = sequence(62, index * 4, frames=100, fov_deg=(60.0, 140.0), width=384, height=288, negatives=0.0)
        lamps = made.look.lights
        away_mm = float((np.hypot(lamps[:, 0], lamps[:, 1]) * lamps[:, 3]).sum())
        told = []
        for item in made.only([10, 50, 90]):
            truth = item.truth.depth.values
            ratio = ranger.depth(item.frame.rgb, made.camera).values / truth
            place = np.argmin(np.linalg.norm(made.stretch.centre - item.pose[:3, 3], axis=1))
            radius_mm, depth_mm = made.stretch.radius_mm[place], np.nanmedian(truth)
            told.append((np.log(np.nanmedian(ratio)), made.look.mm_per_px, radius_mm, away_mm, depth_mm))
        mean = np.mean(told, 0)
        errors.append(mean[0])
        rows.append(np.log(mean[1:]))
    error, cause = np.array(errors), np.array(rows)
    print(f"log scale over {count} sequences: mean {error.mean():+.3f}, standard deviation {error.std():.3f}")
    centred = cause - cause.mean(0)
    slopes = np.linalg.lstsq(np.column_stack([centred, np.ones(count)]), error, rcond=None)[0]
    for name, slope, spread in zip(names, slopes, centred.std(0), strict=False):
        print(f"  {name:20} slope {slope:+.2f}, spread {spread:.2f}")
    rest = error - error.mean() - centred @ slopes[:-1]
    print(f"  standard deviation that these do not explain: {rest.std():.3f}")


def course(ranger: DepthEstimator, count: int, every: int = 4) -> None:
    """Print what of the scale's error frames of one sequence share, and what AbsRel would be without the rest."""
    errors, kept = [], []
    for index in range(count):
        style = "clinical" if index % 3 == 2 else "clean"
        made = sequence(
            63, index * 4, frames=100, fov_deg=(60.0, 140.0), width=384, height=288, negatives=0.0, style=style
        )
        told = []
        for item in made.only(range(0, 100, every)):
            truth = item.truth.depth.values
            found = ranger.depth(item.frame.rgb, made.camera).values
            told.append(np.log(np.nanmedian(found / truth)))
            kept.append((found / truth)[::4, ::4])
        errors.append(told)
    error = np.array(errors)
    within = error - error.mean(1, keepdims=True)
    shared, changing = error.mean(1).std(), np.sqrt((within**2).mean())
    print(f"log scale of {error.size} frames: standard deviation {error.std():.3f}")
    print(f"  {shared:.3f} between sequences of 4 s, {changing:.3f} within them")
    for lag in (1, 2, 4):
        alike = np.mean(within[:, lag:] * within[:, :-lag]) / changing**2
        print(f"  {lag * every / 25:.2f} s apart, the latter correlates by {alike:.2f}")
    for name, taken in (
        ("as it is", np.zeros_like(error)),
        ("with the mean scale of the sequence", within),
        ("with the right scale of each frame", error),
    ):
        rows = [np.nanmean(np.abs(r / np.exp(c) - 1)) for r, c in zip(kept, taken.ravel(), strict=True)]
        print(f"AbsRel {name}: {np.mean(rows):.3f}")


def _frame(ranger: DepthEstimator, item, camera, careful: bool) -> tuple[float, ...]:  # type: ignore[no-untyped-def]
    truth = item.truth.depth.values
    found = ranger.depth(item.frame.rgb, camera, careful=careful)
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
