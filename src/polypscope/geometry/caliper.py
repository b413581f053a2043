"""How large a polyp is, from its mask, its depth and the camera.

Definition. The long axis is the largest 3D distance between any two points of the polyp above the wall, hidden parts
included; the short axis is its extent at right angles to the long one and to the line of sight. Three steps:

1. The largest chord D between outline points in space, each at its own depth (never one depth for the whole mask: on
   ellipsoids that costs 1.6 mm against 0.5 mm).
2. What an outline cannot show. A ball touches its tangent cone in a circle smaller than itself: half angle theta/2,
   true diameter D / cos(theta/2). That holds where the outline is a limb; where polyp and wall meet in view nothing is
   hidden; a stalk or a far foot is hidden behind the head. Which case holds is read from the relief: how far the
   background steps back at the outline, how high the outline and the apex stand over the wall, the angle of view.
3. The factor true/D is a quadratic in those ten ratios (`geometry.calibrated`), fitted once on generated polyps that
   are used for nothing else; it has no dimension, so it can learn shapes but no sizes (`completion=False`: left out).

Everything the figures rest on is simulated: no real image with a caliper's truth was at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from polypscope.geometry import calibrated, masks
from polypscope.geometry.conformal import Conformal
from polypscope.geometry.relief import Relief, relief_of
from polypscope.records import BinaryMask, Camera, DepthMap, SizeEstimate
from polypscope.records.checks import same_shape
from polypscope.records.errors import RecordError
from polypscope.records.size import PART

__all__ = [
    "FLAGS",
    "PREDICTED",
    "Chord",
    "blur_of",
    "combine",
    "largest_chord",
    "measure",
    "one_polyp",
    "relative_sigma",
    "rescaled",
    "with_interval",
]

Array = NDArray[np.float64]

FLAGS: Final = {
    "truncated": "the mask touches the edge of the picture: the size is a lower bound",
    "occluded": "something nearer, such as a fold, hides part of the outline: the size is a lower bound",
    "too_far": "fewer than 12 pixels across, or further than 60 mm: too coarse to measure",
    "oblique": "the wall is seen at less than 20 degrees: the far side is hidden",
    "blurred": "the picture is blurred at the polyp: its outline is uncertain",
    "depth_holes": "more than a tenth of the mask has no depth",
    "no_wall": "too little wall around the polyp to see how it stands",
    "disagreement": "the frames of the track disagree more than their intervals allow",
    "few_frames": "fewer than three usable frames",
}

PREDICTED: Final = "caliper-predicted"
_TOO_FAR_MM: Final = 60.0
_TOO_SMALL_PX: Final = 12.0
_OBLIQUE_DEG: Final = 20.0
_BLUR: Final = 0.62
_FACTOR_RANGE: Final = (0.93, 1.3)
_OF_BOUNDS: Final = 0.9
_BLEEDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Chord:
    """The largest chord of the visible outline and what surrounds it: the input of the completion."""

    long_mm: float
    short_mm: float
    features: Array
    relief: Relief
    extent_px: float


def measure(
    mask: BinaryMask,
    depth: DepthMap,
    camera: Camera,
    *,
    rgb: NDArray[np.uint8] | None = None,
    field_of_view: NDArray[np.bool_] | None = None,
    inset_px: int | None = None,
    completion: bool = True,
    interval: Conformal | None = None,
) -> SizeEstimate:
    """Long and short axis in mm of the polyp under `mask`, with an interval and flags (`FLAGS`).

    Parameters
    ----------
    mask
        One polyp; of several parts the largest is measured.
    depth
        Depth in mm (along the axis or the ray) of the same pixels; holes are allowed, and flagged where they are many.
    camera
        Intrinsics for that picture size.
    rgb
        The picture (H, W, 3), if blur is to be judged.
    field_of_view
        Where the scope's round or octagonal picture is, bool (H, W), if it does not fill the frame: a polyp at its edge
        is truncated as one at the edge of the frame is.
    inset_px
        Border pixels of the mask whose depth is not used. By default none, or where the map carries sigma, and so was
        predicted, a hundredth of the picture's shorter side: predicted maps are coarse and bleed over edges.
    completion
        Whether the hidden part is estimated; without it the largest visible chord is reported.
    interval
        The interval rule; by default the one for exact depth, or for predicted depth where the map carries sigma.
    """
    mask = one_polyp(mask)
    _check_depth(mask, depth, camera)
    predicted = depth.sigma is not None
    if inset_px is None:
        inset_px = max(1, round(_BLEEDS * min(mask.shape))) if predicted else 0
    chord = largest_chord(mask, depth, camera, inset_px=inset_px)
    factor = 1.0
    if completion:
        factor = float(np.clip(np.exp(calibrated.completion(chord.features)), *_FACTOR_RANGE))
    flags = _flags(mask, chord, rgb, field_of_view)
    long = chord.long_mm * factor
    short = chord.short_mm
    if predicted:
        # Predicted masks and maps share a bias that exact ones do not have; it was measured once.
        bias = calibrated.PREDICTED_FACTOR[camera.lens]
        long, short = long * bias, short * bias
    rule = interval or (calibrated.PREDICTED_FRAME if predicted else calibrated.FRAME)
    low, high = rule.interval_mm(long, relative_sigma(chord, depth, mask, flags))
    method = PREDICTED if predicted else "caliper"
    method = method if completion else f"{method}-visible"
    return SizeEstimate(long, min(short, long), (low, high), rule.level, method, flags)


def largest_chord(mask: BinaryMask, depth: DepthMap, camera: Camera, *, inset_px: int = 0) -> Chord:
    """The largest 3D distance between outline points of a mask, and the ratios that say what it misses."""
    relief = relief_of(mask, depth, camera, inset_px=inset_px)
    points = np.vstack([relief.points, relief.apex_point])
    rays = np.vstack([relief.rays, relief.apex_point / np.linalg.norm(relief.apex_point)])
    good = np.isfinite(points).all(axis=1)
    points, rays = points[good], rays[good]
    long, i, j = masks.diameter(points)
    along = (points[j] - points[i]) / long
    sight = relief.centre / relief.distance_mm
    across = np.cross(along, sight)
    size = float(np.linalg.norm(across))
    # A polyp seen end-on has no sideways direction of its own; any right angle to the chord serves.
    across = across / size if size > 1e-6 else np.array([-along[1], along[0], 0.0])
    short = float(np.ptp(points @ across))
    outline_px = masks.hull(masks.outline(mask).uv)
    extent_px = masks.diameter(outline_px)[0]
    features = _features(relief, rays, points, i, j, long, short)
    return Chord(long, max(short, 1e-6), features, relief, extent_px)


def relative_sigma(chord: Chord, depth: DepthMap, mask: BinaryMask, flags: Sequence[str]) -> float:
    """Relative uncertainty of one measurement before calibration: shape, pixels, depth, and what is flagged."""
    relief = chord.relief
    shape = 0.02 + 0.04 * abs(float(chord.features[1]) - 0.3)
    pixels = 0.7 / chord.extent_px
    noise = 1.0 * relief.noise * relief.distance_mm / max(chord.long_mm, 1e-6) / max(np.sqrt(chord.extent_px), 1.0)
    scale = 0.0
    if depth.sigma is not None:
        ratio = (depth.sigma / depth.values)[mask.values & depth.valid]
        scale = float(np.nanmedian(ratio)) if ratio.size else 0.1
    penalty = (
        0.25 * ("truncated" in flags)
        + 0.15 * ("occluded" in flags)
        + 0.05 * ("oblique" in flags)
        + 0.04 * ("blurred" in flags)
    )
    penalty += 0.05 * ("depth_holes" in flags) + 0.05 * ("no_wall" in flags) + 0.05 * ("too_far" in flags)
    return float(np.sqrt(shape**2 + pixels**2 + noise**2 + scale**2 + penalty**2))


def combine(
    estimates: Sequence[SizeEstimate], *, interval: Conformal | None = None, method: str = "caliper-track"
) -> SizeEstimate:
    """One size for one polyp from its measurements over a track.

    Truncated, occluded and distant frames are left out while others exist. The rest are averaged on the log scale with
    weights from their intervals (narrow = near, frontal, sharp), and frames far from the others lose their weight,
    because a single bad mask must not move the polyp. Where no frame shows the whole polyp, each size is a lower bound,
    so the largest count: the ninth decile, lest a single bad mask decide. Errors within a track are alike (the same
    hidden side, the same depth bias), so frames do not average them away: the combined uncertainty stays at half the
    best frame's at least, and with predicted depth, whose scale errs alike in all of them, at the best frame's.
    The interval rule is the one for exact or for predicted depth, as the estimates say, unless one is given.
    """
    if not estimates:
        raise RecordError.of("combine", expected="at least one size estimate of the track", found="none")
    whole = [e for e in estimates if not e.partial]
    usable = [e for e in whole if "too_far" not in e.flags] or whole or list(estimates)
    log_size = np.log([e.long_mm for e in usable])
    width = np.array([_half_width(e) for e in usable])
    weight = 1.0 / np.maximum(width, 1e-3) ** 2
    centre = _weighted_quantile(log_size, weight, 0.5 if whole else _OF_BOUNDS)
    for _ in range(20 if whole else 0):
        pull = weight / (1.0 + ((log_size - centre) / (1.5 * np.maximum(width, 0.02))) ** 2) ** 2
        moved = float(np.sum(pull * log_size) / np.sum(pull))
        if abs(moved - centre) < 1e-9:
            break
        centre = moved
    spread = float(np.sqrt(np.sum(weight * (log_size - centre) ** 2) / np.sum(weight)))
    effective = float(np.sum(weight) ** 2 / np.sum(weight**2))
    best = float(np.min(width))
    predicted = any(e.method.startswith(PREDICTED) for e in usable)
    alike, own = (best, 0.0) if predicted else (0.5 * best, best)
    sigma = float(np.sqrt(alike**2 + (own**2 + spread**2) / max(effective, 1.0)))
    flags = {f for f in ("too_far", "no_wall", "oblique") if all(f in e.flags for e in usable)}
    if not whole:
        flags |= {f for e in usable for f in e.flags if f in PART}
    if len(usable) < 3:
        flags.add("few_frames")
    if whole and len(usable) >= 3 and spread > 2.0 * float(np.median(width)):
        flags.add("disagreement")
    long = float(np.exp(centre))
    rule = interval or (calibrated.PREDICTED_TRACK if predicted else calibrated.TRACK)
    ratio = np.array([e.short_mm / e.long_mm for e in usable])
    short = long * float(np.exp(_weighted_quantile(np.log(ratio), weight, 0.5)))
    return SizeEstimate(long, min(short, long), rule.interval_mm(long, sigma), rule.level, method, tuple(sorted(flags)))


def rescaled(estimate: SizeEstimate, factor: float) -> SizeEstimate:
    """The same estimate after the depth scale was found to be wrong by `factor` (e.g. from forceps contacts)."""
    interval = None if estimate.interval_mm is None else tuple(v * factor for v in estimate.interval_mm)
    return replace(
        estimate,
        long_mm=estimate.long_mm * factor,
        short_mm=estimate.short_mm * factor,
        interval_mm=interval,  # type: ignore[arg-type]
    )


def blur_of(rgb: NDArray[np.uint8], mask: BinaryMask) -> float:
    """How blurred the picture is about the mask, 0 sharp … 1 blurred.

    After Crété et al. 2007: a picture that loses little when it is blurred again was blurred before.
    """
    from scipy import ndimage

    rows, columns = np.nonzero(mask.values)
    pad = 8
    window = np.s_[
        max(rows.min() - pad, 0) : rows.max() + pad + 1, max(columns.min() - pad, 0) : columns.max() + pad + 1
    ]
    grey = rgb[window].astype(np.float64) @ np.array([0.299, 0.587, 0.114])
    ratios = []
    for axis in (0, 1):
        if grey.shape[axis] < 4:
            continue
        again = ndimage.uniform_filter1d(grey, 9, axis=axis)
        sharp, soft = np.abs(np.diff(grey, axis=axis)), np.abs(np.diff(again, axis=axis))
        total = float(sharp.sum())
        if total > 0:
            ratios.append(1.0 - float(np.maximum(sharp - soft, 0.0).sum()) / total)
    return max(ratios, default=1.0)


def _features(relief: Relief, rays: Array, points: Array, i: int, j: int, long: float, short: float) -> Array:
    """Ten dimensionless numbers about the chord (i, j); zeros stand for "no wall to judge by"."""
    half_angle = 0.5 * float(np.arccos(np.clip(rays[i] @ rays[j], -1.0, 1.0)))
    steps = np.clip(np.nan_to_num(np.append(relief.step, 0.0)) / long, 0.0, 0.1) * 10.0
    at_ends = np.sort(steps[[min(i, len(steps) - 1), min(j, len(steps) - 1)]])
    ranges = np.linalg.norm(points[[i, j]], axis=1)
    depth_difference = abs(float(ranges[0] - ranges[1])) / long
    apex = ends_low = ends_high = elevation = 0.0
    if relief.wall is not None:
        apex = float(np.clip(relief.apex_mm / long, 0.0, 1.5))
        elevation = float(np.clip(np.sin(np.radians(relief.elevation_deg)), 0.0, 1.0))
        heights = np.sort(points[[i, j]] @ relief.wall[:3] + relief.wall[3]) / long
        ends_low, ends_high = (float(v) for v in np.clip(heights, -0.3, 1.2))
    return np.array(
        [
            -np.log(np.cos(min(half_angle, 1.3))),
            apex,
            elevation,
            float(np.mean(steps[:-1])),
            ends_low,
            ends_high,
            min(depth_difference, 1.0),
            min(short / long, 1.0),
            float(at_ends[0]),
            float(at_ends[1]),
        ]
    )


def _flags(
    mask: BinaryMask, chord: Chord, rgb: NDArray[np.uint8] | None, field_of_view: NDArray[np.bool_] | None
) -> tuple[str, ...]:
    relief = chord.relief
    flags = []
    if masks.touches_border(mask) or (field_of_view is not None and masks.touches(mask, ~field_of_view)):
        flags.append("truncated")
    if float(np.mean(np.nan_to_num(relief.step) < -0.1 * chord.long_mm)) > 0.1:
        flags.append("occluded")
    if chord.extent_px < _TOO_SMALL_PX or relief.distance_mm > _TOO_FAR_MM:
        flags.append("too_far")
    if relief.wall is None:
        flags.append("no_wall")
    elif relief.elevation_deg < _OBLIQUE_DEG:
        flags.append("oblique")
    if relief.holes > 0.1:
        flags.append("depth_holes")
    if rgb is not None and blur_of(rgb, mask) > _BLUR:
        flags.append("blurred")
    return tuple(flags)


def with_interval(estimate: SizeEstimate, factor: float) -> SizeEstimate:
    """The same estimate with its interval stretched by `factor` on the log scale."""
    if estimate.interval_mm is None:
        return estimate
    low, high = (estimate.long_mm * (v / estimate.long_mm) ** factor for v in estimate.interval_mm)
    return replace(estimate, interval_mm=(low, high))


def one_polyp(mask: BinaryMask) -> BinaryMask:
    """The largest part of a mask without its holes; an empty mask or a speck is an error."""
    if mask.area_px == 0:
        raise RecordError.of(
            "mask", expected="the pixels of one polyp", found="an empty mask", hint="outline the polyp first"
        )
    part = masks.largest_part(mask)
    if part.area_px < 4:
        raise RecordError.of(
            "mask", expected="at least 4 connected pixels", found=str(part.area_px), hint="too small to measure"
        )
    return part


def _check_depth(mask: BinaryMask, depth: DepthMap, camera: Camera) -> None:
    same_shape("mask", mask.shape, "the depth map", depth.shape)
    if depth.shape != (camera.height, camera.width):
        raise RecordError.of(
            "camera",
            expected=f"intrinsics for the depth map's {depth.shape[1]} x {depth.shape[0]} pixels",
            found=f"{camera.width} x {camera.height}",
            hint="use Camera.resized",
        )
    seen = depth.values[mask.values & depth.valid]
    if seen.size < max(4, 0.3 * mask.area_px):
        raise RecordError.of(
            "depth",
            expected="values in at least 30 % of the mask",
            found=f"{seen.size} of {mask.area_px} pixels",
            hint="fill the map's holes or choose another frame",
        )
    middle = float(np.median(seen))
    if middle < 1.0:
        raise RecordError.of(
            "depth",
            expected="millimetres",
            found=f"a median of {middle:.3g} at the polyp, which looks like metres",
            hint="multiply by 1000",
        )


def _half_width(estimate: SizeEstimate) -> float:
    if estimate.interval_mm is None or estimate.interval_mm[0] <= 0:
        return 0.2
    return 0.5 * float(np.log(estimate.interval_mm[1] / estimate.interval_mm[0]))


def _weighted_quantile(values: Array, weight: Array, share: float) -> float:
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, share * total[-1])])
