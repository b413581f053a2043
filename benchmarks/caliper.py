"""The caliper on polyps it has never seen: the thirty models and 300 sampled ones, 8 to 50 mm away, from all sides.

    python benchmarks/caliper.py            # about three minutes on one core

Prints the mean absolute error in mm per view and per polyp (six views combined) for exact depth, pixel noise of 2 %,
a scale error of 2 % and masks a pixel too large or too small, beside simpler ways to measure; then the coverage of the
90 % intervals, and the time per measurement. Nothing here was used to fit anything (recipes/caliper.py: other seeds).
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy import ndimage

from polypscope.geometry import caliper, masks
from polypscope.records import BinaryMask, DepthKind, DepthMap
from polypscope.simulator.polyps import MODELS, sample_model
from polypscope.simulator.specimens import Specimen, specimens

SEED = 77_001


def rectangle_times_median_depth(view: Specimen) -> float:
    """The naive way: longest line across the mask in pixels x median depth / focal length."""
    ends, _ = masks.feret(view.mask)
    depth = float(np.nanmedian(view.depth.values[view.mask.values]))
    return float(np.linalg.norm(ends[0] - ends[1])) * depth / view.camera.fx


def changed(view: Specimen, kind: str, rng: np.random.Generator) -> tuple[BinaryMask, DepthMap]:
    mask, z = view.mask.values, view.depth.values
    if kind == "2 % pixel noise":
        z = (z * (1 + 0.02 * rng.standard_normal(z.shape))).astype(np.float32)
    elif kind == "2 % scale error":
        z = z * np.float32(1.02)
    elif kind == "mask a pixel too large":
        mask = ndimage.binary_dilation(mask)
    elif kind == "mask a pixel too small" and view.mask.area_px > 60:
        mask = ndimage.binary_erosion(mask)
    return BinaryMask(np.ascontiguousarray(mask)), DepthMap(z, DepthKind.Z_MM)


KINDS = ("exact", "2 % pixel noise", "2 % scale error", "mask a pixel too large", "mask a pixel too small")


def main(sampled: int, views: int) -> None:
    rng = np.random.default_rng(SEED)
    sets = {"thirty models": list(MODELS), f"{sampled} new polyps": [sample_model(rng) for _ in range(sampled)]}
    for title, models in sets.items():
        errors: dict[str, list[float]] = {k: [] for k in (*KINDS, "largest visible chord", "2D length x median depth")}
        tracks: dict[str, list[float]] = {k: [] for k in KINDS[:2]}
        covered: dict[str, list[bool]] = {"view": [], "polyp": []}
        seconds = 0.0
        for model in models:
            found: dict[str, list] = {k: [] for k in KINDS}  # type: ignore[type-arg]
            for view in specimens(model, rng, views):
                for kind in KINDS:
                    mask, depth = changed(view, kind, rng)
                    start = time.process_time()
                    estimate = caliper.measure(mask, depth, view.camera)
                    seconds += time.process_time() - start
                    found[kind].append(estimate)
                    errors[kind].append(estimate.long_mm - model.size_mm)
                visible = caliper.measure(view.mask, view.depth, view.camera, completion=False)
                errors["largest visible chord"].append(visible.long_mm - model.size_mm)
                errors["2D length x median depth"].append(rectangle_times_median_depth(view) - model.size_mm)
                low, high = found["exact"][-1].interval_mm
                covered["view"].append(low <= model.size_mm <= high)
            for kind in KINDS[:2]:
                if found[kind]:
                    combined = caliper.combine(found[kind])
                    tracks[kind].append(combined.long_mm - model.size_mm)
                    if kind == "exact":
                        low, high = combined.interval_mm
                        covered["polyp"].append(low <= model.size_mm <= high)
        count = len(errors["exact"])
        constant = np.abs(np.array([m.size_mm for m in models]) - np.median([m.size_mm for m in models])).mean()
        print(f"\n{title}: {count} views")
        print(f"{'':28}{'MAE mm':>8}{'bias mm':>9}{'P90 mm':>8}")
        for name, values in errors.items():
            e = np.array(values)
            print(f"{name:28}{np.abs(e).mean():8.3f}{e.mean():+9.3f}{np.quantile(np.abs(e), 0.9):8.3f}")
        for name, values in tracks.items():
            e = np.array(values)
            label = f"per polyp, {name}"
            print(f"{label:28}{np.abs(e).mean():8.3f}{e.mean():+9.3f}{np.quantile(np.abs(e), 0.9):8.3f}")
        print(f"{'constant predictor':28}{constant:8.3f}")
        print(
            f"90 % intervals cover {np.mean(covered['view']):.1%} of views, {np.mean(covered['polyp']):.1%} of polyps; "
            f"{1000 * seconds / (count * len(KINDS)):.1f} ms per measurement"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
