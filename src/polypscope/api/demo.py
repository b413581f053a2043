"""The first thing to try: a simulated withdrawal, analysed, with the truth beside each estimate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polypscope.records import SizeEstimate

__all__ = ["Demo", "demo"]

_SEED, _INDEX, _FRAMES, _SIDE = 10, 0, 300, 416


@dataclass(frozen=True)
class Demo:
    """What the demonstration found: a row for each true polyp, false tracks, and where the report is."""

    out: Path
    rows: tuple[dict[str, Any], ...]
    false_tracks: int
    seconds: float

    @property
    def report(self) -> Path:
        """The report to open."""
        return self.out / "report.html"


def demo(out: Path = Path("polypscope-demo"), *, seed: int | None = None, overwrite: bool = False) -> Demo:
    """Render a short withdrawal with polyps of known size, analyse it and report, truth beside estimate.

    Needs no data and no network. The colon is simulated, so the true size of every polyp is known exactly.

    Parameters
    ----------
    out
        Folder for the results (short: -o).
    seed
        Another colon than the usual one.
    overwrite
        Replace the results of an earlier demonstration.
    """
    import time

    from polypscope.api.analyze import _report_settings
    from polypscope.api.simulated import SimulatedSource
    from polypscope.pipeline.against_truth import AgainstTruth
    from polypscope.pipeline.engine import Settings
    from polypscope.pipeline.findings import Working
    from polypscope.pipeline.follow import FollowSettings
    from polypscope.pipeline.models import load_models
    from polypscope.pipeline.run import discard, run
    from polypscope.records.errors import OutputError
    from polypscope.report.analysis import TrueMatch, write_analysis
    from polypscope.runtime.console import note, progress
    from polypscope.runtime.runlog import RunLog

    started = time.perf_counter()
    if (out / "run.json").exists() and not overwrite:
        raise OutputError(
            f"{out}: expected a new folder, found results of an earlier run; give --overwrite to replace them, "
            "or another folder with --out."
        )
    with RunLog(out, "demo", {"seed": seed}) as log:
        models = load_models()
        note("preparing the colon; the first time on a machine, its renderer is compiled (up to a minute).")
        chosen = (_SEED, _INDEX) if seed is None else (seed, 0)
        source = SimulatedSource(
            *chosen,
            withdrawal=True,
            frames=_FRAMES,
            width=_SIDE,
            height=_SIDE,
            negatives=0.0,
            fov_deg=110.0,
            lens="fisheye",
        )
        settings = Settings(threshold=models.threshold, follow=FollowSettings(threshold=models.threshold))
        truth = AgainstTruth(Working.of((_SIDE, _SIDE), settings.working_px))
        source.on_truth = truth.expect
        with progress("rendering and analysing", _FRAMES, "frames") as ticker:

            def on_frame(told: Any) -> None:
                truth.add(told)
                ticker.step()

            done = run(
                source,
                out,
                models.seer,
                settings,
                model=models.identity,
                camera=source.camera,
                ranger=models.ranger,
                on_frame=on_frame,
            )
        matches = [
            TrueMatch(
                outcome.polyp.id,
                outcome.polyp.size_mm or 0.0,
                outcome.polyp.paris or "",
                outcome.first_s,
                outcome.last_s,
                outcome.seen,
                outcome.tracks,
                outcome.latency_frames,
            )
            for outcome in truth.outcomes()
        ]
        write_analysis(
            out / "report.html",
            done.results,
            settings=_report_settings(settings.as_dict(), models, source.camera, source.info.name),
            notes=[
                "This video is simulated: no patient, no real colon. Its truth is exact.",
                "What spoils real recordings is drawn in on purpose: glare, blur, residue, text and coloured panels.",
            ],
            truth=matches,
        )
        rows = _rows(done.results, matches)
        seconds = time.perf_counter() - started
        log.record(
            model=models.identity,
            polyps=rows,
            false_tracks=len(truth.false_tracks()),
            stage_seconds={stage: round(value, 3) for stage, value in sorted(done.seconds.items())},
        )
        discard(out)
    result = Demo(out, tuple(rows), len(truth.false_tracks()), seconds)
    _show(result)
    return result


def _rows(results: Any, matches: list[Any]) -> list[dict[str, Any]]:
    by_id = {polyp.id: polyp for polyp in results.polyps}
    rows = []
    # More digits than are shown: rounded twice, 8.449 would be 8.5 here and 8.4 in the report.
    for match in matches:
        found = [by_id[n] for n in match.found_as if n in by_id]
        polyp = max(found, key=lambda p: p.frames) if found else None
        size = None if polyp is None else polyp.size
        rows.append(
            {
                "true": match.id,
                "paris": match.paris,
                "true_mm": round(match.size_mm, 4),
                "found_as": [p.id for p in found],
                "latency_frames": match.latency_frames,
                "estimate_mm": None if size is None else round(size.long_mm, 4),
                "interval_mm": None if size is None else _interval(size),
            }
        )
    return rows


def _interval(size: SizeEstimate) -> list[float | None] | None:
    """Lower and upper limit; the latter is None of a polyp that no frame shows whole."""
    if size.interval_mm is None:
        return None
    low, high = (round(limit, 4) for limit in size.interval_mm)
    return [low, None if size.partial else high]


def _show(result: Demo) -> None:
    from polypscope import DISCLAIMER
    from polypscope.api.analyze import size_shown
    from polypscope.runtime.console import say, show_table

    rows = [
        (
            row["true"],
            row["paris"],
            f"{row['true_mm']:.1f}",
            *size_shown(row["estimate_mm"], *(row["interval_mm"] or (None, None))),
            ", ".join(map(str, row["found_as"])) or "missed",
            "–" if row["latency_frames"] is None else row["latency_frames"],
        )
        for row in result.rows
    ]
    columns = ("true polyp", "Paris", "true mm", "estimate mm", "interval mm", "found as", "latency (frames)")
    show_table("A simulated withdrawal: truth beside estimate", columns, rows)
    say(f"False tracks: {result.false_tracks}. Took {result.seconds:.0f} s.")
    say(f"Open the report: {result.report}")
    say(f"and the video with markers: {result.out / 'overlay.mp4'}")
    say(DISCLAIMER)
