"""What a check and a conversion leave behind; apart, because the command line loads it for its help."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CheckReport", "Conversion", "Problem"]


@dataclass(frozen=True)
class Problem:
    """One fault: kind ("missing mask", "size mismatch", …), the file relative to the root, and what to do."""

    kind: str
    path: str
    text: str


@dataclass(frozen=True)
class CheckReport:
    """What a check found. polyp_frames: frames whose mask is not empty."""

    dataset: str
    root: str
    cases: int
    clips: int
    frames: int
    masks: int
    polyp_frames: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """1 when anything is wrong."""
        return 1 if self.problems else 0


@dataclass
class Conversion:
    """What a conversion wrote, and the frames that it had to leave out."""

    out: Path
    frames: int = 0
    masks: int = 0
    skipped: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when a frame was left out."""
        return 1 if self.skipped else 0
