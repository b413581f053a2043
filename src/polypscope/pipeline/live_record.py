"""Keeping the results of a live run: the same files as those of a recorded video, written as they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polypscope.pipeline.engine import Memory, Settings, Told
from polypscope.pipeline.results import Results, write_results
from polypscope.pipeline.run import picture_jpeg
from polypscope.pipeline.store import Partial
from polypscope.records import Frame

__all__ = ["LiveRecord"]


class LiveRecord:
    """Takes each result; `finish` writes the tables. Killed before that, the journal in `.partial` still has it all."""

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        self._out = out
        self._partial = Partial(out, settings, resume=False)

    def add(self, frame: Frame, told: Told) -> None:
        """Keep one result."""
        if told.new_best:
            self._partial.keep_frame(frame.index, picture_jpeg(frame.rgb))
        self._partial.append(told.findings)

    def finish(self, name: str, fps: float, memory: Memory, settings: Settings) -> Results:
        """Write all results but the report."""
        with self._partial as partial:
            return write_results(partial, self._out, name, fps, memory.working, settings, memory)
