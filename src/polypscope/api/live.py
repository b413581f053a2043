"""Analyse a camera, a file at its own speed, or the simulator, as it happens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["LiveRun", "live"]


@dataclass(frozen=True)
class LiveRun:
    """How well the analysis kept up, why it ended, and where the results are, if they were kept."""

    stats: dict[str, Any]
    ended_by: str
    polyps: int
    out: Path | None


def live(
    source: str,
    *,
    record: Path | None = None,
    camera: Path | None = None,
    fov: float | None = None,
    lens: Literal["pinhole", "fisheye"] = "pinhole",
    model: str | None = None,
    threshold: float | None = None,
    deadline: float = 120.0,
    seconds: float | None = None,
    preview: bool = True,
    port: int = 8765,
) -> LiveRun:
    """Analyse a camera or a file as it happens, with a preview in the browser.

    The newest frame is always the one analysed: late frames are dropped and counted, never queued. Stop with Ctrl-C.

    Parameters
    ----------
    source
        A camera ("camera:0", "/dev/video0"), a video file played at its own speed, or "simulator" ("simulator:7" for
        another seed).
    record
        Folder that keeps the results and a report; nothing is kept without it.
    camera
        camera.json of the scope, needed for sizes in mm, unless --fov is given.
    fov
        Horizontal field of view in degrees, if there is no calibration.
    lens
        Lens model that goes with --fov.
    model
        Name of a shipped segmenter or path of an exported one.
    threshold
        Probability that a polyp must reach; by default the one on the model's card. Its outline runs at a half, or at
        this if it is lower.
    deadline
        Milliseconds from capture to result; a result that takes longer is counted as a miss.
    seconds
        End after so many seconds.
    preview
        Show the picture at http://127.0.0.1:PORT; only this machine can see it.
    port
        Port of the preview; 0 takes any free one.
    """
    import contextlib

    from polypscope import DISCLAIMER
    from polypscope.api.analyze import _report_settings
    from polypscope.pipeline.engine import Eye, Memory, Settings
    from polypscope.pipeline.findings import Working
    from polypscope.pipeline.follow import FollowSettings
    from polypscope.pipeline.inputs import camera_for
    from polypscope.pipeline.live import LiveStats, run_live
    from polypscope.pipeline.live_record import LiveRecord
    from polypscope.pipeline.models import load_models
    from polypscope.pipeline.run import discard
    from polypscope.report.analysis import write_analysis
    from polypscope.report.preview import Preview
    from polypscope.runtime.console import note, say, show_table
    from polypscope.runtime.runlog import RunLog

    with _open(source) as opened:
        info = opened.info
        scope = camera_for(camera, fov, lens, info.width, info.height, getattr(opened, "camera", None))
        models = load_models(model)
        chosen = models.threshold if threshold is None else threshold
        settings = Settings(threshold=chosen, follow=FollowSettings(threshold=chosen))
        working = Working.of((info.height, info.width), settings.working_px)
        eye = Eye(working, models.seer, settings, scope, models.ranger)
        memory = Memory(working, settings)
        arguments = {"source": source, "camera": camera, "fov": fov, "lens": lens, "model": model}
        with contextlib.ExitStack() as stack:
            log = kept = None
            if record is not None:
                log = stack.enter_context(RunLog(record, "live", arguments))
                kept = LiveRecord(record, {"source": source, "model": models.identity})
            shown = stack.enter_context(Preview(working, f"Live: {info.name}", port)) if preview else None
            if shown is not None:
                say(f"Preview: {shown.url}")
            status = _Status()

            def on_result(frame: Any, told: Any, stats: LiveStats) -> None:
                if kept is not None:
                    kept.add(frame, told)
                status.update(stats)
                if shown is not None:
                    shown.show(frame, told, status.numbers)

            eye.warm_up()
            stats = run_live(
                opened,
                eye,
                memory,
                paced=info.kind != "camera" and info.kind != "simulator",
                deadline_ms=deadline,
                seconds=seconds,
                on_result=on_result,
            )
            if kept is not None and log is not None and record is not None:
                fps = stats.analysed / stats.seconds if stats.seconds > 0 else 25.0
                results = kept.finish(info.name, fps, memory, settings)
                log.record(latency=stats.as_dict(), ended_by=stats.ended_by, polyps=len(results.polyps))
                write_analysis(
                    record / "report.html",
                    results,
                    settings={**_report_settings(settings.as_dict(), models, scope, info.name), **stats.as_dict()},
                    notes=[*opened.notes, f"Live run, ended: {stats.ended_by}."],
                    speed=f"{fps:.0f} frames/s",
                )
                discard(record)
    numbers = stats.as_dict()
    show_table("Live", ("measure", "value"), list(numbers.items()))
    say(f"{len(memory.tracks())} polyps. Ended: {stats.ended_by}.")
    if record is not None:
        say(f"Report: {record / 'report.html'}")
    for text in opened.notes:
        note(text)
    say(DISCLAIMER)
    return LiveRun(numbers, stats.ended_by, len(memory.tracks()), record)


class _Status:
    """Numbers that are dear to compute, refreshed once in half a second, and a line of them on a terminal."""

    def __init__(self) -> None:
        self._at = 0.0
        self._numbers: dict[str, Any] = {}

    def update(self, stats: Any) -> None:
        import sys
        import time

        now = time.monotonic()
        if now - self._at < 0.5:
            return
        self._at, self._numbers = now, stats.as_dict()
        if sys.stderr.isatty():
            n = self._numbers
            line = (
                f"{n['frames_per_s']:5.1f} frames/s   p50 {n['p50_ms']:.0f}  p95 {n['p95_ms']:.0f}  p99 "
                f"{n['p99_ms']:.0f} ms   dropped {n['dropped_percent']:.1f} %   misses {n['deadline_misses']}"
            )
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def numbers(self) -> dict[str, Any]:
        """The newest numbers."""
        return self._numbers


def _open(source: str) -> Any:
    if source == "simulator" or source.startswith("simulator:"):
        from polypscope.api.simulated import SimulatedSource
        from polypscope.records.errors import UsageError

        seed = source.partition(":")[2] or "0"
        if not seed.isdigit():
            raise UsageError(f"simulator:{seed}: expected a whole number as seed, found {seed!r}.")
        return SimulatedSource(int(seed), frames=1500)
    if source.startswith(("camera:", "/dev/video")):
        from polypscope.io.sources import open_source

        return open_source(source)
    from polypscope.pipeline.inputs import open_any

    return open_any(Path(source))
