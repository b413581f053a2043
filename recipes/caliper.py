"""Fit the caliper's completion and its interval rules on generated polyps; print what goes into geometry/calibrated.py.

    python recipes/caliper.py                # about two minutes on one core
    python recipes/caliper.py predicted      # rules for the shipped models: about ten minutes on two cores

Two disjoint sets of sampled polyps, neither of which is used to judge anything (benchmarks/caliper.py draws other seeds
and the thirty models): 350 polyps x 3 views for the completion, 200 polyps x 4 views for the intervals. So that the
completion does not lean on what only perfect input shows, a quarter of its views get 0.5 or 2 % pixel noise on the
depth and a mask one pixel too small, right, or too large.
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import Literal

import numpy as np
from scipy import ndimage

from polypscope.geometry import calibrated, caliper, conformal
from polypscope.pipeline.measure import measurable
from polypscope.pipeline.models import load_models
from polypscope.pipeline.polyp_views import matching
from polypscope.records import BinaryMask, DepthKind, DepthMap, PolypscopeError, SizeEstimate
from polypscope.runtime.jobs import run_jobs
from polypscope.simulator import Settings, sequence
from polypscope.simulator.polyps import sample_model
from polypscope.simulator.specimens import Specimen, specimens

FIT_SEED, INTERVAL_SEED, PREDICTED_SEED = 20_001, 20_002, 400_000
RIDGE, CLIP, SPOILED_WEIGHT = 3.0, 0.03, 0.1
LEVEL = 0.9
FIELDS_DEG = {"pinhole": (60.0, 140.0), "fisheye": (80.0, 140.0)}
Lens = Literal["pinhole", "fisheye"]
Track = tuple[list[SizeEstimate], float]  # of one polyp, and its true size


def spoiled(view: Specimen, rng: np.random.Generator) -> tuple[BinaryMask, DepthMap, bool]:
    """A quarter of the views with noise on the depth and a mask that is a pixel off."""
    noise = float(rng.choice([0.0] * 6 + [0.005, 0.02]))
    mask, z = view.mask.values, view.depth.values
    if noise:
        z = (z * (1 + noise * rng.standard_normal(z.shape))).astype(np.float32)
        if view.mask.area_px > 60:
            change = int(rng.integers(-1, 2))
            mask = ndimage.binary_dilation(mask) if change > 0 else ndimage.binary_erosion(mask) if change else mask
    return BinaryMask(np.ascontiguousarray(mask)), DepthMap(z, DepthKind.Z_MM), noise > 0


def fit_completion(polyps: int, views: int) -> np.ndarray:
    """Ridge regression of log(true / chord) on the monomials, with weights that ignore the worst tenth (Huber)."""
    rng = np.random.default_rng(FIT_SEED)
    features, target, importance = [], [], []
    for number in range(polyps):
        for view in specimens(sample_model(rng), rng, views):
            mask, depth, rough = spoiled(view, rng)
            try:
                chord = caliper.largest_chord(caliper.one_polyp(mask), depth, view.camera)
            except PolypscopeError:
                continue
            features.append(chord.features)
            target.append(np.log(view.model.size_mm / chord.long_mm))
            importance.append(view.model.size_mm * (SPOILED_WEIGHT if rough else 1.0))
        if number % 50 == 0:
            print(f"# completion: polyp {number} of {polyps}", file=sys.stderr, flush=True)
    design, y = calibrated.monomials(np.array(features)), np.array(target)
    mean, scale = design.mean(0), design.std(0)
    mean[0], scale[scale < 1e-9] = 0.0, 1.0
    z = (design - mean) / scale
    penalty = RIDGE * np.eye(z.shape[1])
    penalty[0, 0] = 0.0
    # Errors count in mm, so large polyps weigh more.
    base = np.array(importance) / np.mean(importance)
    weight = base
    for _ in range(50):
        c = np.linalg.solve(z.T @ (z * weight[:, None]) + penalty, z.T @ (weight * y))
        weight = base * np.minimum(1.0, CLIP / np.maximum(np.abs(y - z @ c), 1e-9))
    raw = c / scale
    raw[0] = c[0] - float(np.sum(c[1:] * mean[1:] / scale[1:]))
    print(f"# completion: {len(y)} views, mean |log error| {np.abs(y).mean():.4f} -> {np.abs(y - z @ c).mean():.4f}")
    return raw


def fit_intervals(polyps: int, views: int, level: float = 0.9) -> None:
    """Interval rules per view (one random view of each polyp) and per track (all views of each polyp)."""
    rng = np.random.default_rng(INTERVAL_SEED)
    unit = conformal.Conformal(1.0, level, polyps, "unit")
    frame, track = [], []
    for number in range(polyps):
        model, estimates = sample_model(rng), []
        for view in specimens(model, rng, views):
            noise = float(rng.choice([0.0, 0.02]))
            z = (view.depth.values * (1 + noise * rng.standard_normal(view.depth.shape))).astype(np.float32)
            estimates.append(caliper.measure(view.mask, DepthMap(z, DepthKind.Z_MM), view.camera, interval=unit))
        if estimates:
            frame.append((estimates[0], model.size_mm))
        if len(estimates) >= 3:
            track.append((estimates, model.size_mm))
        if number % 50 == 0:
            print(f"# intervals: polyp {number} of {polyps}", file=sys.stderr, flush=True)
    rule = rule_of(frame, level, "FRAME")
    combined = []
    for estimates, size in track:
        scaled = [caliper.with_interval(e, rule.quantile) for e in estimates]
        combined.append((caliper.combine(scaled, interval=unit), size))
    rule_of(combined, level, "TRACK")


def predicted_tracks(lens: Lens, number: int, frames: int = 50) -> list[Track]:
    """What the shipped models make of every other frame of a sequence: sizes of each polyp, bias included."""
    calibrated.PREDICTED_FACTOR = dict.fromkeys(FIELDS_DEG, 1.0)
    models = load_models(threads=1)
    unit = conformal.Conformal(1.0, LEVEL, 1, "unit")
    settings = Settings(
        frames=frames,
        polyps="sampled",
        negatives=0.0,
        style=("clean", "clinical")[number % 2],
        lens=lens,
        fov_deg=FIELDS_DEG[lens],
    )
    models.seer.reset()
    found: dict[int, list[SizeEstimate]] = {}
    sizes: dict[int, float] = {}
    shown = sequence(seed=PREDICTED_SEED + number, settings=settings)
    camera = shown.camera
    for item in shown.only(range(0, frames, 2)):
        mask = measurable(models.seer.step(item.frame.rgb))
        depth = models.ranger.depth(item.frame.rgb, camera)
        for polyp in item.truth.polyps:
            part = matching(mask, item.truth.instances == polyp.id)
            if part is not None:
                with contextlib.suppress(PolypscopeError):
                    estimate = caliper.measure(part, depth, camera, field_of_view=shown.fov, interval=unit)
                    found.setdefault(polyp.id, []).append(estimate)
                    sizes[polyp.id] = polyp.size_mm
    return [(estimates, sizes[i]) for i, estimates in found.items() if len(estimates) >= 3]


def fit_predicted() -> None:
    """Bias by lens and interval rules for the shipped models."""
    unit = conformal.Conformal(1.0, LEVEL, 0, "unit")
    tracks: list[Track] = []
    factors: dict[str, float] = {}
    for lens, numbers in (("pinhole", range(200)), ("fisheye", range(200, 300))):
        done = run_jobs(partial(predicted_tracks, lens), numbers, jobs=-1, label=lens)
        for failure in done.failures:
            print(f"# {lens}, sequence {failure.name}: {failure.sentence}")
        own = [track for found in done.good for track in found]
        ratios = [np.log(size / caliper.combine(estimates, interval=unit).long_mm) for estimates, size in own]
        factors[lens] = round(float(np.exp(np.median(ratios))), 3)
        tracks += [([caliper.rescaled(e, factors[lens]) for e in estimates], size) for estimates, size in own]
    print(f"PREDICTED_FACTOR = {factors}")
    rule = rule_of([(estimates[len(estimates) // 2], size) for estimates, size in tracks], LEVEL, "PREDICTED_FRAME")
    rule_of(
        [(caliper.combine([caliper.with_interval(e, rule.quantile) for e in estimates], interval=unit), size)
         for estimates, size in tracks],
        LEVEL,
        "PREDICTED_TRACK",
    )  # fmt: skip


def rule_of(pairs: list, level: float, name: str) -> conformal.Conformal:  # type: ignore[type-arg]
    sizes = [e.long_mm for e, _ in pairs]
    sigma = [0.5 * np.log(e.interval_mm[1] / e.interval_mm[0]) for e, _ in pairs]
    rule = conformal.fit(sizes, [s for _, s in pairs], sigma, level=level, source="simulated")
    errors = np.array(sizes) - np.array([s for _, s in pairs])
    print(f"# {name}: {rule.polyps} polyps, MAE {np.abs(errors).mean():.3f} mm, bias {errors.mean():+.3f} mm")
    print(f"{name} = Conformal({rule.quantile:.3f}, {level}, {rule.polyps}, ...)")
    return rule


if __name__ == "__main__":
    part = sys.argv[1] if len(sys.argv) > 1 else "all"
    if part in ("all", "completion"):
        raw = fit_completion(350, 3)
        print("COEFFICIENTS = np.array(")
        print("    " + np.array2string(raw, separator=", ", precision=5, max_line_width=110).replace("\n", "\n    "))
        print(")")
        calibrated.COEFFICIENTS[:] = raw
    if part == "predicted":
        fit_predicted()
    if part in ("all", "intervals"):
        fit_intervals(200, 4)
