"""Accuracy of the shipped depth head on simulated colons and polyps that it never saw.

    python benchmarks/depth_accuracy.py [--colons 80] [--frames 3] [--card src/…/weights/polypscope-depth.json]
    python benchmarks/depth_accuracy.py --causes 90
    python benchmarks/depth_accuracy.py --course 60

AbsRel = mean of |predicted - true| / true over all pixels of a frame, averaged over frames: metric, and after the
prediction was scaled by the median ratio; of one look at each frame, and of a careful one, which averages all its flips
and quarter turns. Seeds below 5000 and the thirty polyp models were never trained on. Every row has colons of its
own, because the scale errs by colon: what is drawn decides more than how many frames are looked at ("+-" is one
standard error over colons). With --card, the figures become the scores on the depth head's card. With --causes,
nothing of this but what the error of the scale goes along with, over that many other sequences: a slope of -0.2 on the
size of vessels says that vessels twice as large make everything look 13 % nearer, as they would to anybody who knows
how large vessels usually are. With --course, how that error changes in the course of a sequence: `geometry.scale`
rests on it.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from polypscope.runtime.cards import Score, add_scores
from polypscope.runtime.depth import DepthEstimator
from polypscope.runtime.jobs import run_jobs
from polypscope.runtime.segmenter import Segmenter
from polypscope.simulator import sequence

PROTOCOL = "mean over frames of colons and polyps that were never trained on (benchmarks/depth_accuracy.py)"
LOOKS = {"once": "", "careful": ", careful"}  # how a look is named in the table, and on the card
METRICS = ("AbsRel", "AbsRel, aligned by medians", "AbsRel on polyps", "share of pixels within one sigma")


class Row(NamedTuple):
    """What a row of the table is about."""

    lens: Literal["pinhole", "fisheye"]
    fov_deg: tuple[float, float]
    style: Literal["clean", "clinical"]

    @property
    def view(self) -> str:
        return f"{self.fov_deg[0]:.0f}-{self.fov_deg[1]:.0f} deg"


ROWS = (
    Row("pinhole", (60.0, 80.0), "clean"),
    Row("pinhole", (80.0, 110.0), "clean"),
    Row("pinhole", (110.0, 140.0), "clean"),
    Row("fisheye", (100.0, 140.0), "clean"),
    Row("pinhole", (70.0, 120.0), "clinical"),
)
Errors = NDArray[np.float64]  # [frames, looks, metrics]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--colons", type=int, default=80, help="colons per row, a sequence of 4 seconds in each")
    parser.add_argument("--frames", type=int, default=3, help="frames of each sequence, spread over it")
    parser.add_argument("--card", type=Path, help="model card (JSON) to write the figures into")
    parser.add_argument("--causes", type=int, help="sequences to tell what the scale's error goes along with")
    parser.add_argument("--course", type=int, help="sequences to tell how the scale's error changes over time")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; every core by default")
    options = parser.parse_args()
    if options.causes:
        causes(_ranger(threads=2), options.causes)
    elif options.course:
        course(_ranger(threads=2), options.course)
    else:
        table(options.colons, options.frames, options.jobs, options.card)


def table(colons: int, frames: int, jobs: int, card: Path | None) -> None:
    """Print the errors of every row and of all together, and write them into a card."""
    print("lens      field of view  style     look      AbsRel    +-    aligned  polyp only  within 1 sigma  frames")
    scores, everything = [], []
    for number, row in enumerate(ROWS):
        places = range(number * colons, (number + 1) * colons)
        done = run_jobs(partial(one_colon, row, frames), places, jobs=jobs, label=f"{row.lens} {row.view}")
        for failure in done.failures:
            print(f"# colon {failure.name}: {failure.sentence}")
        errors = np.stack(done.good)
        everything.append(errors)
        _print_row(f"{row.lens:9} {row.view:14} {row.style:9}", errors)
        mean = np.nanmean(errors, axis=(0, 1))
        scores += [
            Score(
                data=f"simulated, {row.style}, {row.lens}, {row.view}",
                metric=metric + look,
                value=round(float(mean[i, j]), 4),
                protocol=PROTOCOL,
                images=errors.shape[0] * errors.shape[1],
            )
            for i, look in enumerate(LOOKS.values())
            for j, metric in enumerate(METRICS)
        ]
    _print_row(f"{'all of them':34}", np.concatenate(everything))
    if card is not None:
        add_scores(card, scores)


def one_colon(row: Row, frames: int, place: int) -> Errors:
    """Errors of frames of one colon, [frames, looks, metrics]."""
    made = sequence(
        78, place * 4, frames=100, fov_deg=row.fov_deg, lens=row.lens, style=row.style, width=384, height=288,
        negatives=0.0,
    )  # fmt: skip
    ranger = _ranger(threads=1)
    chosen = made.only(np.linspace(0, 99, frames).astype(int))
    return np.array([[_frame(ranger, item, made.camera, look == "careful") for look in LOOKS] for item in chosen])


def _ranger(threads: int) -> DepthEstimator:
    return DepthEstimator.load(Segmenter.load(threads=threads), threads=threads)


def _print_row(name: str, errors: Errors) -> None:
    """errors: [colons, frames, looks, metrics]."""
    mean = np.nanmean(errors, axis=(0, 1))
    unsure = errors[..., 0].mean(1).std(0) / np.sqrt(len(errors))
    for i, look in enumerate(LOOKS):
        print(
            f"{name} {look:8} {mean[i, 0]:7.4f} {unsure[i]:7.4f} {mean[i, 1]:8.4f} {mean[i, 2]:11.4f} "
            f"{mean[i, 3]:15.3f} {errors.shape[0] * errors.shape[1]:7}",
            flush=True,
        )


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
    print(f"log scale of {error.size} frames: mean {error.mean():+.3f}, standard deviation {error.std():.3f}")
    print(f"  {error.mean(1).std():.3f} between sequences of 4 s, {np.sqrt((within**2).mean()):.3f} within them")
    shared, changing, lasts_s = _parts(error - error.mean(), every / 25)
    print(f"  as a constant and a changing part: {shared:.3f} and {changing:.3f}, which lasts {lasts_s:.2f} s")
    for name, taken in (
        ("as it is", np.zeros_like(error)),
        ("with the mean scale of the sequence", within),
        ("with the right scale of each frame", error),
    ):
        rows = [np.nanmean(np.abs(r / np.exp(c) - 1)) for r, c in zip(kept, taken.ravel(), strict=True)]
        print(f"AbsRel {name}: {np.mean(rows):.3f}")


def _parts(error: NDArray[np.float64], step_s: float) -> tuple[float, float, float]:
    """s, c and T of the covariance s² + c² exp(-t / T) that comes nearest to that of errors [sequences, moments].

    It is fitted to products rather than read from what is left without each sequence's mean, which takes the slow
    part of the change along.
    """
    lags = np.arange(round(error.shape[1] * 0.75))
    found = np.array([np.mean(error[:, lag:] * error[:, : error.shape[1] - lag]) for lag in lags])
    root = np.sqrt(error.shape[1] - lags)  # as many pairs as there are count
    best = (np.inf, 0.0, 0.0, 0.0)
    for lasts_s in np.geomspace(0.1, 4, 60):
        design = np.column_stack([np.ones(len(lags)), np.exp(-lags * step_s / lasts_s)])
        squares, left = nnls(design * root[:, None], found * root)
        best = min(best, (left, *np.sqrt(squares), lasts_s))
    return best[1:]


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
