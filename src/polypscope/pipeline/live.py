"""Live analysis: the newest frame is always the one analysed; frames that came meanwhile are dropped and counted.

Latency is measured from capture (the moment a frame is handed over by the device, or due by the file's own clock) to
the moment its result is known.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from polypscope.pipeline.engine import Eye, Memory, Stopwatch, Told
from polypscope.pipeline.source import Source, ahead
from polypscope.records import Frame

__all__ = ["LiveStats", "newest_frames", "run_live"]

_KEPT_LATENCIES = 100_000  # an hour at 25 per second: the percentiles are exact, the memory is bounded


@dataclass
class LiveStats:
    """How well the analysis keeps up. deadline_ms: a result that takes longer is a miss."""

    deadline_ms: float = 120.0
    captured: int = 0
    dropped: int = 0
    analysed: int = 0
    misses: int = 0
    seconds: float = 0.0
    ended_by: str = ""
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_LATENCIES), repr=False)

    def add(self, latency_ms: float) -> None:
        """Count one result."""
        self.analysed += 1
        self.misses += latency_ms > self.deadline_ms
        self.latencies_ms.append(latency_ms)

    def percentile(self, share: float) -> float:
        """Latency in ms that this share of the frames stays below; 0 before the first result."""
        return float(np.percentile(np.fromiter(self.latencies_ms, float), share)) if self.latencies_ms else 0.0

    @property
    def drop_share(self) -> float:
        """Share of the captured frames that was dropped."""
        return self.dropped / self.captured if self.captured else 0.0

    def as_dict(self) -> dict[str, float | int | str]:
        """Plain numbers, for the preview, run.json and the terminal."""
        return {
            "captured": self.captured,
            "analysed": self.analysed,
            "dropped": self.dropped,
            "dropped_percent": round(100 * self.drop_share, 2),
            "p50_ms": round(self.percentile(50), 1),
            "p95_ms": round(self.percentile(95), 1),
            "p99_ms": round(self.percentile(99), 1),
            "deadline_ms": self.deadline_ms,
            "deadline_misses": self.misses,
            "seconds": round(self.seconds, 1),
            "frames_per_s": round(self.analysed / self.seconds, 1) if self.seconds > 0 else 0.0,
        }


class _Newest:
    """A place for one frame: a new one takes the place of one that nobody fetched."""

    def __init__(self, stats: LiveStats) -> None:
        self._stats = stats
        self._changed = threading.Condition()
        self._item: tuple[Frame, float] | None = None
        self._error: BaseException | None = None
        self._over = False

    def put(self, frame: Frame) -> None:
        with self._changed:
            self._stats.captured += 1
            self._stats.dropped += self._item is not None
            self._item = (frame, time.perf_counter())
            self._changed.notify()

    def end(self, error: BaseException | None = None) -> None:
        with self._changed:
            self._over, self._error = True, error
            self._changed.notify()

    def get(self) -> tuple[Frame, float] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._item is not None or self._over)
            item, self._item = self._item, None
            if item is None and self._error is not None:
                raise self._error
            return item


def newest_frames(
    source: Source, stats: LiveStats, *, paced: bool, stop: threading.Event
) -> Iterator[tuple[Frame, float]]:
    """The newest frame each time one is asked for, with the moment of its capture (`time.perf_counter`).

    paced: hand frames over at the times the source states (a file), instead of as they come (a device).
    """
    place = _Newest(stats)

    def capture() -> None:
        try:
            start: float | None = None
            for frame in source:
                now = time.perf_counter()
                start = now - frame.pts_s if start is None else start
                if paced and (wait := start + frame.pts_s - now) > 0 and stop.wait(wait):
                    break
                if stop.is_set():
                    break
                place.put(frame)
        except BaseException as error:
            place.end(error)
        else:
            place.end()

    thread = threading.Thread(target=capture, name="capture", daemon=True)
    thread.start()
    try:
        while (item := place.get()) is not None:
            yield item
    finally:
        stop.set()
        thread.join(timeout=5)


def run_live(
    source: Source,
    eye: Eye,
    memory: Memory,
    *,
    paced: bool,
    deadline_ms: float = 120.0,
    seconds: float | None = None,
    stop: threading.Event | None = None,
    on_result: Callable[[Frame, Told, LiveStats], None] | None = None,
) -> LiveStats:
    """Analyse a source as it happens, until it ends, `seconds` have passed or `stop` is set.

    An error of the source (an unplugged camera) ends the run with what was found so far; `ended_by` says it.
    """
    from polypscope.records.errors import InputError

    stats = LiveStats(deadline_ms)
    stop = stop or threading.Event()
    over = threading.Event()
    watch = Stopwatch()
    begun = time.perf_counter()
    newest = newest_frames(source, stats, paced=paced, stop=over)
    # The networks look at the next frame while this one is judged and shown, so fewer frames are dropped.
    glimpses = ahead(((eye.glance(frame), captured) for frame, captured in newest), 1, patient=False)
    try:
        for glimpse, captured in glimpses:
            frame, told = glimpse.frame, memory.take(eye.judge(glimpse, watch))
            now = time.perf_counter()
            stats.add(1000 * (now - captured))
            stats.seconds = now - begun
            if on_result is not None:
                on_result(frame, told, stats)
            if seconds is not None and stats.seconds >= seconds:
                stats.ended_by = "time is up"
                break
            if stop.is_set():
                stats.ended_by = "stopped"
                break
    except InputError as error:
        stats.ended_by = str(error)
    except KeyboardInterrupt:
        stats.ended_by = "stopped by the user"
    finally:
        over.set()  # first of all: the thread of the networks may be waiting for a frame
        glimpses.close()
    stats.seconds = time.perf_counter() - begun
    stats.ended_by = stats.ended_by or "the source ended"
    return stats
