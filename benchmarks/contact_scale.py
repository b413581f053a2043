"""What forceps contacts do for sizes: simulated polyps that a graduated shaft touches, measured without and with it.

    python benchmarks/contact_scale.py [--sequences 150] [--noise 1.0]

In each sequence (clean and clinical in turn, two pinhole lenses to a fisheye, 60 to 140 degrees) a shaft with marks
every 5 mm touches the first polyp in up to three frames. Its marks, with `--noise` pixels of error each, give depth and
direction (`geometry.forceps.extension`); that depth, compared with what the depth network makes of the same frame with
the shaft painted over (`pipeline.known_scale`), corrects the scale (`geometry.scale`). Sizes are those of predicted
masks and depth in the other frames, combined over the sequence. All of it is simulated.
"""

from __future__ import annotations

import argparse
import contextlib
from functools import partial
from typing import NamedTuple

import numpy as np

from polypscope.geometry import caliper
from polypscope.geometry.cameras import project
from polypscope.geometry.forceps import extension
from polypscope.geometry.scale import ScaleCourse
from polypscope.pipeline.findings import Working
from polypscope.pipeline.known_scale import scale_course
from polypscope.pipeline.measure import measurable
from polypscope.pipeline.models import load_models
from polypscope.pipeline.polyp_views import matching
from polypscope.records import BinaryMask, Camera, DepthMap, Frame, KnownDepth, PolypscopeError, SizeEstimate
from polypscope.runtime.jobs import run_jobs
from polypscope.simulator import Settings, sequence
from polypscope.simulator.sequence import SimulatedFrame, SimulatedSequence

SEED = 990_000  # nothing was trained, tuned or calibrated on these
CONTACTS = (0, 1, 3)
REACH_MM = (8.0, 45.0)


class View(NamedTuple):
    """The polyp in a frame without forceps."""

    time_s: float
    mask: BinaryMask
    depth: DepthMap


class Touched(NamedTuple):
    """One polyp: its true size, its estimate by number of contacts, and log errors of single readings."""

    true_mm: float
    sizes: dict[int, SizeEstimate]
    readings: list[float]


class OneFrame:
    """A frame as a source of its own."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.info, self.notes = frame, None, ()

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter([self.frame])


def made(seed: int, number: int) -> SimulatedSequence:
    lens = ("pinhole", "pinhole", "fisheye")[number % 3]
    settings = Settings(
        frames=100,
        polyps="sampled",
        negatives=0.0,
        forceps="contact",
        style=("clean", "clinical")[number % 2],
        lens=lens,
        fov_deg=(60.0, 140.0) if lens == "pinhole" else (80.0, 140.0),
    )
    return sequence(seed=seed + number, settings=settings)


def reachable(shown: SimulatedSequence) -> list[int]:
    """Frames in which the forceps can touch the first polyp, well inside the picture."""
    assert shown.forceps is not None
    polyp, found = shown.polyps[0], []
    for index, pose in enumerate(shown.poses):
        seen = pose[:3, :3].T @ (polyp.apex - pose[:3, 3])
        x, y = project(shown.camera, seen[None])[0]
        inside = 20 < x < shown.camera.width - 20 and 20 < y < shown.camera.height - 20
        if not inside or not REACH_MM[0] < seen[2] < REACH_MM[1]:
            continue
        if shown.forceps.at(pose, polyp.apex, polyp.model.size_mm, shown.lumen) is not None:
            found.append(index)
    return found


def annotated(item: SimulatedFrame, camera: Camera, noise_px: float, rng: np.random.Generator) -> KnownDepth | None:
    """What an annotator's marks on the shaft tell, or None where fewer than four points of it are to be seen."""
    at = {point["point"]: (point["x_px"], point["y_px"]) for point in item.points if point["visible"]}
    marks = [at[name] for name in ("tip", *(f"mark{n}" for n in range(1, len(at)))) if name in at]
    if len(marks) < 4 or len(marks) != len(at):
        return None
    spoilt = np.array(marks) + rng.normal(0, noise_px, (len(marks), 2))
    contact = extension(spoilt, camera, mark_sigma_px=max(noise_px, 0.1))
    return KnownDepth(item.frame.index, *spoilt[0].tolist(), contact.depth_mm, contact.direction)


def touched(noise_px: float, seed: int, number: int) -> Touched | None:
    rng = np.random.default_rng([seed, number])
    shown = made(seed, number)
    possible = reachable(shown) if shown.polyps else []
    if len(possible) < max(CONTACTS):
        return None
    models = load_models(threads=1)
    assert models.ranger is not None
    camera = shown.camera
    working = Working.of((camera.height, camera.width), max(camera.height, camera.width))
    shown.forceps_frames = {possible[i] for i in np.linspace(0, len(possible) - 1, 5).astype(int)[1:4]}  # type: ignore
    told: list[ScaleCourse] = []
    scales: list[tuple[float, float]] = []
    views: list[View] = []
    for item in shown:
        if item.frame.index in shown.forceps_frames:
            with contextlib.suppress(PolypscopeError):
                known = annotated(item, camera, noise_px, rng)
                if known is not None:
                    told.append(scale_course(OneFrame(item.frame), [known], working, camera, models.ranger))  # type: ignore
            continue
        if item.frame.index % 2:
            continue
        mask = measurable(models.seer.step(item.frame.rgb))
        polyp = item.truth.instances == 1
        part = matching(mask, polyp)
        if part is not None:
            depth = models.ranger.depth(item.frame.rgb, camera)
            views.append(View(item.frame.pts_s, part, depth))
            scales.append((item.frame.pts_s, float(np.nanmedian((item.truth.depth.values / depth.values)[polyp]))))
    sizes = {}
    for count in CONTACTS:
        chosen = [told[i] for i in np.linspace(0, len(told) - 1, count).astype(int)] if told else []
        if len(chosen) < count:
            return None
        course = (
            ScaleCourse(tuple(c.times_s[0] for c in chosen), tuple(c.ratios[0] for c in chosen)) if chosen else None
        )
        estimates = []
        for view in views:
            depth = view.depth if course is None else view.depth.scaled(course.factor(view.time_s))
            with contextlib.suppress(PolypscopeError):
                estimates.append(caliper.measure(view.mask, depth, camera, field_of_view=shown.fov))
        if len(estimates) < 3:
            return None
        sizes[count] = caliper.combine(estimates)
    readings = []
    for course in told:
        nearest_s, scale = min(scales, key=lambda pair: abs(pair[0] - course.times_s[0]))
        if abs(nearest_s - course.times_s[0]) < 0.2:
            readings.append(float(np.log(course.ratios[0] / scale)))
    return Touched(shown.polyps[0].model.size_mm, sizes, readings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=150)
    parser.add_argument("--noise", type=float, default=1.0, help="error of each mark in px")
    parser.add_argument("--seed", type=int, default=SEED, help="first seed; another one for another draw")
    parser.add_argument("--jobs", type=int, default=-1)
    options = parser.parse_args()
    work = partial(touched, options.noise, options.seed)
    done = run_jobs(work, range(options.sequences), jobs=options.jobs, label="sequences")
    for failure in done.failures:
        print(f"# sequence {failure.name}: {failure.sentence}")
    good = [result for result in done.good if result is not None]
    print(f"{len(good)} polyps that were touched and seen in three frames or more")
    readings = np.array([reading for result in good for reading in result.readings])
    spread = 1.4826 * np.median(np.abs(readings - np.median(readings)))
    print(f"a reading against the polyp's own scale right then: spread {spread:.3f} on the log scale ({len(readings)})")
    print("contacts  mean error mm  median relative error  90 % intervals cover")
    truth = np.array([result.true_mm for result in good])
    for count in CONTACTS:
        sizes = [result.sizes[count] for result in good]
        error = np.abs(np.array([size.long_mm for size in sizes]) - truth)
        inside = np.mean([s.interval_mm[0] <= t <= s.interval_mm[1] for s, t in zip(sizes, truth, strict=True)])
        print(f"{count:8} {error.mean():14.2f} {100 * np.median(error / truth):20.1f} % {100 * inside:19.1f} %")


if __name__ == "__main__":
    main()
