"""Which frames show a polyp best: large, sharp, whole, sure and central, and not three times the same moment."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polypscope.pipeline.findings import Findings, Found, Working, rounded

__all__ = ["BestFrames", "Kept"]

_KEEP = 3
_APART_S = 0.6
_BETTER = 1.04  # a new frame of the same moment must be clearly better: fewer pictures are written


@dataclass(frozen=True, eq=False, slots=True)
class Kept:
    """A frame worth showing, with what was found in it (working pixels)."""

    index: int
    pts_s: float
    quality: float
    found: Found


class BestFrames:
    """Keeps up to three frames for each polyp, of different moments. Decides from findings alone."""

    def __init__(self) -> None:
        self._kept: dict[int, list[Kept]] = {}

    def offer(self, polyp: int, findings: Findings, found: Found, working: Working) -> bool:
        """Consider a frame; True if it is kept (now)."""
        kept = self._kept.setdefault(polyp, [])
        new = Kept(findings.index, findings.pts_s, _quality(findings, found, working), found)
        near = [k for k in kept if abs(k.pts_s - new.pts_s) < _APART_S]
        if near:
            if any(new.quality < _BETTER * k.quality for k in near):
                return False
            for k in near:
                kept.remove(k)
        elif len(kept) == _KEEP:
            worst = min(kept, key=lambda k: k.quality)
            if new.quality < _BETTER * worst.quality:
                return False
            kept.remove(worst)
        kept.append(new)
        return True

    def of(self, polyp: int) -> list[Kept]:
        """The frames kept for a polyp, best first."""
        return sorted(self._kept.get(polyp, ()), key=lambda k: (-k.quality, k.index))

    def indices(self) -> set[int]:
        """Every frame that is kept for some polyp."""
        return {k.index for kept in self._kept.values() for k in kept}


def _quality(findings: Findings, found: Found, working: Working) -> float:
    height, width = working.shape
    share = math.sqrt(found.box.area_px / (height * width))
    size = min(share / 0.25, 1.0)  # a quarter of the picture's side is as good as a close-up
    x, y = found.box.center_xy
    off_centre = math.hypot(x / width - 0.5, y / height - 0.5) / 0.7
    sharp = min(findings.sharpness, 1.2) / 1.2
    whole = 0.4 if found.truncated else 1.0
    measured = 1.0 if found.size is not None else 0.85
    return rounded(found.score**2 * (0.15 + size) * (0.3 + sharp) * (1.2 - 0.6 * off_centre) * whole * measured)
