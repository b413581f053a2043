"""Sizes in mm: what one frame says of a polyp, and what all frames of its track say together."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polypscope.pipeline.findings import Findings, Found, rounded
from polypscope.records import Camera, DepthMap, PolypscopeError, ProbabilityMap, SizeEstimate

__all__ = ["CLEAR", "NO_CAMERA", "NO_DEPTH", "TrackSizes", "measurable", "measured"]

NO_CAMERA = "no camera was given"
NO_DEPTH = "the model has no depth"
_MOST = 3  # components measured in one frame: more of them are noise, and time is short
# Components below this score are not outlined well enough to be measured; those that the segmenter only holds on to
# from earlier frames have at most 0.51.
CLEAR = 0.52


def measurable(probability: ProbabilityMap, threshold: float = 0.5) -> NDArray[np.bool_]:
    """What is outlined at `threshold`, bool (H, W), without what is only held on to from earlier frames.

    The segmenter holds on to something only where a frame shows nothing else.
    """
    values = probability.values
    return (values >= threshold) & (values.max() >= CLEAR)


def measured(found: tuple[Found, ...], camera: Camera | None, depth: DepthMap | None) -> tuple[Found, ...]:
    """The same components with a size and a distance, or the reason why not; camera and depth are of working size."""
    if not any(f.score >= CLEAR for f in found):
        return found
    if camera is None or depth is None:
        return tuple(replace(f, why=NO_CAMERA if camera is None else NO_DEPTH) for f in found)
    return tuple(
        _with_size(f, depth, camera) if f.score >= CLEAR and rank < _MOST else f for rank, f in enumerate(found)
    )


def _with_size(found: Found, depth: DepthMap, camera: Camera) -> Found:
    from polypscope.geometry import caliper

    inside = depth.values[found.mask.values]
    inside = inside[np.isfinite(inside)]
    distance = rounded(np.median(inside), 2) if inside.size else None
    try:
        size = caliper.measure(found.mask, depth, camera)
    except PolypscopeError as error:
        return replace(found, why=str(error), distance_mm=distance)
    return replace(found, size=_short(size, found.truncated), distance_mm=distance)


def _short(size: SizeEstimate, truncated: bool) -> SizeEstimate:
    """Few digits, so that the journal is short and reads back equal; truncation by the true field of view."""
    flags = tuple(dict.fromkeys((*size.flags, *(("truncated",) if truncated else ()))))
    interval = None if size.interval_mm is None else (rounded(size.interval_mm[0]), rounded(size.interval_mm[1]))
    long = rounded(size.long_mm)
    return SizeEstimate(long, min(rounded(size.short_mm), long), interval, size.level, size.method, flags)


class TrackSizes:
    """Gathers single-frame sizes by polyp and combines them on demand."""

    def __init__(self) -> None:
        self._sizes: dict[int, list[SizeEstimate]] = {}
        self._reasons: dict[int, Counter[str]] = {}
        self._combined: dict[int, tuple[int, SizeEstimate | None]] = {}

    def add(self, polyp: int, findings: Findings, found: Found) -> None:
        """Take what one frame says of a polyp."""
        if found.size is None:
            if found.why:
                self._reasons.setdefault(polyp, Counter())[found.why] += 1
            return
        size = found.size
        if "blurred" in findings.flags:
            size = replace(size, flags=(*size.flags, "blurred"))
        self._sizes.setdefault(polyp, []).append(size)

    def of(self, polyp: int) -> SizeEstimate | None:
        """The polyp's size by all frames so far, None if no frame could be measured."""
        sizes = self._sizes.get(polyp)
        if not sizes:
            return None
        from polypscope.geometry import caliper

        count, known = self._combined.get(polyp, (0, None))
        # On the screen a number need not change with every frame; the end result takes all of them.
        if count == len(sizes) or (count >= 8 and len(sizes) < 1.1 * count):
            return known
        known = caliper.combine(sizes)
        self._combined[polyp] = (len(sizes), known)
        return known

    def final(self, polyp: int) -> SizeEstimate | None:
        """The polyp's size by all its frames."""
        self._combined.pop(polyp, None)
        return self.of(polyp)

    def count(self, polyp: int) -> int:
        """In how many frames the polyp was measured."""
        return len(self._sizes.get(polyp, ()))

    def reason(self, polyp: int) -> str:
        """Why a polyp has no size: the most frequent reason, or an empty text."""
        reasons = self._reasons.get(polyp)
        return reasons.most_common(1)[0][0] if reasons else ""
