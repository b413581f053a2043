"""How large a polyp is, with how sure we are."""

from __future__ import annotations

from dataclasses import dataclass

from polypscope.records.checks import finite, positive
from polypscope.records.errors import RecordError

__all__ = ["PART", "SizeEstimate"]

PART = frozenset({"truncated", "occluded"})  # flags of what shows only a part of the polyp


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """Long and short axis in mm; `interval_mm` covers the true long axis with probability `level`, None if unknown.

    method: how it was measured. flags: why it should be trusted less ("truncated", "too_far", "oblique", ...).

    >>> SizeEstimate(8.2, 6.0, (7.0, 9.5), 0.9, "caliper").bin
    '5-10'
    """

    long_mm: float
    short_mm: float
    interval_mm: tuple[float, float] | None
    level: float
    method: str
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        long = positive("SizeEstimate.long_mm", self.long_mm, hint="give millimetres")
        short = positive("SizeEstimate.short_mm", self.short_mm, hint="give millimetres")
        if short > long * (1 + 1e-9):
            raise RecordError.of("SizeEstimate", expected="long_mm >= short_mm", found=f"{long:g} < {short:g}")
        object.__setattr__(self, "long_mm", long)
        object.__setattr__(self, "short_mm", short)
        level = finite("SizeEstimate.level", self.level)
        if not 0 < level < 1:
            raise RecordError.of("SizeEstimate.level", expected="a probability in (0, 1)", found=f"{level:g}")
        if self.interval_mm is not None:
            low, high = (finite("SizeEstimate.interval_mm", v) for v in self.interval_mm)
            if not 0 <= low <= high:
                raise RecordError.of(
                    "SizeEstimate.interval_mm", expected="0 <= low <= high in mm", found=f"{low:g}, {high:g}"
                )
            object.__setattr__(self, "interval_mm", (low, high))

    @property
    def partial(self) -> bool:
        """Whether only a part of the polyp was ever in view, so that its size is a lower bound.

        >>> SizeEstimate(8.2, 6.0, None, 0.9, "caliper", ("truncated",)).partial
        True
        """
        return not PART.isdisjoint(self.flags)

    @property
    def bin(self) -> str:
        """Clinical size bin of the long axis: "<=5", "5-10" or ">=10" mm."""
        return "<=5" if self.long_mm <= 5 else ("5-10" if self.long_mm < 10 else ">=10")
