"""Analyse videos: find, follow and measure polyps, and report."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from polypscope.geometry.scale import ScaleCourse
    from polypscope.io.sources import FrameSource
    from polypscope.pipeline.results import Results
    from polypscope.pipeline.see import Ranger
    from polypscope.records import Camera

__all__ = ["Analyses", "VideoSummary", "analyze"]


@dataclass(frozen=True)
class VideoSummary:
    """What became of one video: where its results are, and one row for each polyp."""

    name: str
    out: Path
    polyps: tuple[dict[str, Any], ...]
    frames: int
    duration_s: float
    frames_per_s: float
    real_time: float
    notes: tuple[str, ...] = ()

    @property
    def report(self) -> Path:
        """The report to open."""
        return self.out / "report.html"


@dataclass(frozen=True)
class Analyses:
    """The videos that were analysed, and those that failed with their sentence."""

    videos: tuple[VideoSummary, ...]
    failures: tuple[tuple[str, str], ...] = ()

    @property
    def exit_code(self) -> int:
        """1 when a video failed."""
        return 1 if self.failures else 0


@dataclass(frozen=True)
class _Options:
    """Everything but source and output; sent to worker processes."""

    camera: Path | None
    fov: float | None
    lens: Literal["pinhole", "fisheye"]
    known_depths: Path | None
    model: str | None
    threshold: float | None
    every: int
    overlay: bool
    resume: bool
    overwrite: bool
    threads: int
    quiet: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)


def analyze(
    *sources: Path,
    out: Path | None = None,
    camera: Path | None = None,
    fov: float | None = None,
    lens: Literal["pinhole", "fisheye"] = "pinhole",
    known_depths: Path | None = None,
    model: str | None = None,
    threshold: float | None = None,
    every: int = 1,
    overlay: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    jobs: int = 1,
    cluster: str | None = None,
) -> Analyses:
    """Find, follow and measure the polyps of a video, and write a report.

    Writes polyps.csv and polyps.json (one row per polyp), frames.parquet, masks.json (COCO), detections.csv,
    overlay.mp4, thumbnails, run.json and report.html, which opens offline in any browser.

    Parameters
    ----------
    sources
        Video files, DICOM videos, folders of videos, or folders of frames (read in natural order).
    out
        Folder for the results (short: -o). For several videos, each gets a folder of its own inside.
        By default the name of the source with "-polypscope".
    camera
        camera.json of the scope, as `polypscope calibrate` writes it; needed for sizes in mm, unless --fov is given.
        A camera.json beside the source is used without asking.
    fov
        Horizontal field of view in degrees, if there is no calibration.
    lens
        Lens model that goes with --fov.
    known_depths
        Table of frame, x_px, y_px and depth_mm: points whose depth is known, such as forceps contacts (contacts.csv of
        `polypscope measure forceps`). They set the scale of the sizes, most for the frames around them.
    model
        Name of a shipped segmenter or path of an exported one; see `polypscope models list`.
    threshold
        Probability that a polyp must reach; by default the one on the model's card. Its outline runs at a half, or at
        this if it is lower.
    every
        Analyse each so-many-th frame.
    overlay
        Write overlay.mp4, the video with outlines, numbers and sizes.
    resume
        Go on with an interrupted run; it ends with the same results as an unbroken one.
    overwrite
        Replace results that are already in the folder.
    jobs
        Videos analysed side by side; -1 uses every core.
    cluster
        Address of a Ray cluster that does the work ("local" starts one here); needs the extra `cluster`.
    """
    from polypscope.pipeline.inputs import find_sources, unique_names
    from polypscope.records.errors import UsageError

    if not sources:
        raise UsageError("SOURCE: expected a video file or a folder, found nothing; name at least one.")
    if every < 1:
        raise UsageError(f"--every: expected a whole number from 1 on, found {every}; give 1 for every frame.")
    if threshold is not None and not 0 < threshold < 1:
        raise UsageError(f"--threshold: expected a probability between 0 and 1, found {threshold:g}.")
    if camera is not None and fov is not None:
        raise UsageError(
            "--camera and --fov: expected one of them, found both; the camera file says the field of view."
        )
    if resume and overwrite:
        raise UsageError("--resume and --overwrite: expected one of them, found both.")
    found = find_sources(sources)
    several = len(found) > 1 or cluster is not None
    if known_depths is not None and len(found) > 1:
        raise UsageError(
            f"--known-depths: expected one video, whose points they are, found {len(found)}; analyse them one by one."
        )
    arguments = {
        "sources": [str(s) for s in sources],
        "camera": camera,
        "fov": fov,
        "lens": lens,
        "known_depths": known_depths,
        "model": model,
        "threshold": threshold,
        "every": every,
        "overlay": overlay,
        "resume": resume,
    }
    options = _Options(
        None if camera is None else camera.absolute(),
        fov,
        lens,
        None if known_depths is None else known_depths.absolute(),
        model,
        threshold,
        every,
        overlay,
        resume,
        overwrite,
        threads=_threads(jobs if several else 1),
        quiet=several,
        arguments={key: str(value) if isinstance(value, Path) else value for key, value in arguments.items()},
    )
    if not several:
        path = found[0]
        summary = _analyze_one(options, (path, out or Path(f"{unique_names([path])[0]}-polypscope")))
        _show_video(summary)
        return Analyses((summary,))
    return _analyze_many(found, out or Path("polypscope-results"), options, jobs, cluster)


def _threads(jobs: int) -> int:
    import os

    cores = os.cpu_count() or 1
    side_by_side = cores if jobs == -1 else max(1, jobs)
    return max(1, min(4, cores // side_by_side))


def _analyze_many(found: list[Path], out: Path, options: _Options, jobs: int, cluster: str | None) -> Analyses:
    from functools import partial

    from polypscope.pipeline.inputs import unique_names
    from polypscope.runtime.console import say, show_table
    from polypscope.runtime.jobs import run_jobs

    names = unique_names(found)
    items = [(path.absolute(), out.absolute() / name) for path, name in zip(found, names, strict=True)]
    results = run_jobs(
        partial(_analyze_one, options),
        items,
        names=names,
        jobs=jobs,
        label="analysing",
        unit="videos",
        cluster=cluster,
    )
    failed = {failure.name: failure.sentence for failure in results.failures}
    rows = []
    for name, value in zip(names, results.values, strict=True):
        if value is None:
            rows.append((name, None, None, None, None, f"failed: {failed.get(name, '')}"))
            continue
        sizes = [row["long_mm"] for row in value.polyps if row["long_mm"] is not None]
        largest = f"{max(sizes):.1f}" if sizes else None
        rows.append((name, len(value.polyps), largest, round(value.duration_s, 1), round(value.real_time, 2), "done"))
    columns = ("video", "polyps", "largest mm", "seconds", "× real time", "state")
    _write_summary(out / "summary.csv", columns, rows)
    show_table("Videos", columns, rows)
    say(f"Results: {out}")
    return Analyses(tuple(results.good), tuple(failed.items()))


def _write_summary(path: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    import csv
    import io

    from polypscope.io.paths import write_text

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    write_text(path, buffer.getvalue())


def _analyze_one(options: _Options, item: tuple[Path, Path]) -> VideoSummary:
    """Analyse one source; runs in a worker when there are several."""
    from polypscope.pipeline.engine import Settings
    from polypscope.pipeline.follow import FollowSettings
    from polypscope.pipeline.inputs import camera_beside, camera_for, identity, open_any
    from polypscope.pipeline.models import load_models
    from polypscope.pipeline.run import discard, run
    from polypscope.report.analysis import write_analysis
    from polypscope.runtime.console import progress
    from polypscope.runtime.runlog import RunLog

    path, out = item
    finished = _check_output(out, options)
    if finished is not None:
        return finished
    with open_any(path) as source:
        info = source.info
        camera = camera_for(options.camera, options.fov, options.lens, info.width, info.height, camera_beside(path))
        models = load_models(options.model, threads=options.threads)
        threshold = models.threshold if options.threshold is None else options.threshold
        settings = Settings(threshold=threshold, every=options.every, follow=FollowSettings(threshold=threshold))
        scale = None
        if options.known_depths is not None:  # before anything is written: a wrong table should leave nothing behind
            scale = _scale_of(options.known_depths, source, settings.working_px, camera, models.ranger)
        with RunLog(out, "analyze", {**options.arguments, "source": str(path)}) as log:
            if path.is_file():
                log.add_input(path)
            log.record(model=models.identity, settings=settings.as_dict())
            if options.known_depths is not None and scale is not None:
                log.add_input(options.known_depths)
                log.record(scale={"times_s": scale.times_s, "known_over_predicted": scale.ratios})
            total = None if info.frame_count is None else -(-info.frame_count // options.every)
            with progress(path.name, None if options.quiet else total, "frames") as ticker:
                done = run(
                    source,
                    out,
                    models.seer,
                    settings,
                    identity=identity(path),
                    model=models.identity,
                    camera=camera,
                    ranger=models.ranger,
                    scale=scale,
                    overlay=options.overlay,
                    resume=options.resume,
                    on_frame=(lambda told: None) if options.quiet else (lambda told: ticker.step()),
                )
            notes = list(done.notes)
            if scale is not None:
                notes.append(f"scale of sizes {_scale_shown(scale)}")
            for note in notes:
                log.add_note(note)
            results = done.results
            real_time = results.duration_s / done.wall_s if done.frames_now == results.frames else 0.0
            log.record(
                frames=results.frames,
                polyps=len(results.polyps),
                duration_s=results.duration_s,
                frames_per_s=round(done.fps, 2),
                real_time_factor=round(real_time, 3),
                stage_seconds={stage: round(seconds, 3) for stage, seconds in sorted(done.seconds.items())},
            )
            write_analysis(
                out / "report.html",
                results,
                settings=_report_settings(settings.as_dict(), models, camera, path.name, scale),
                notes=notes,
                speed=f"{done.fps:.0f} frames/s",
            )
        discard(out)
    return _summary(path.name, out, results, done.fps, real_time, notes)


def _summary(name: str, out: Path, results: Results, fps: float, real_time: float, notes: list[str]) -> VideoSummary:
    rows = tuple(polyp.row() for polyp in results.polyps)
    return VideoSummary(name, out, rows, results.frames, results.duration_s, fps, real_time, tuple(notes))


def _check_output(out: Path, options: _Options) -> VideoSummary | None:
    """Refuse to write over results; with --resume, give back those that are finished."""
    import json

    from polypscope.records.errors import OutputError
    from polypscope.runtime.console import note

    log = out / "run.json"
    if not log.is_file() or options.overwrite:
        return None
    if not options.resume:
        raise OutputError(
            f"{out}: expected a new folder, found results of an earlier run; give --resume to finish them, "
            "--overwrite to replace them, or another folder with --out."
        )
    try:
        data = json.loads(log.read_text(encoding="utf-8"))
        if data.get("status") != "done" or (out / ".partial").exists():
            return None
        polyps = json.loads((out / "polyps.json").read_text(encoding="utf-8"))["polyps"]
    except (OSError, ValueError, KeyError):
        return None
    note(f"{out} is finished already; nothing was left to do.")
    return VideoSummary(out.name, out, tuple(polyps), data["frames"], data["duration_s"], data["frames_per_s"], 0.0)


def _scale_of(
    table: Path, source: FrameSource, working_px: int, camera: Camera | None, ranger: Ranger | None
) -> ScaleCourse:
    """What the known depths in `table` say about the scale of the source's predicted depth."""
    from polypscope.io.known_depths import read_known_depths
    from polypscope.pipeline.findings import Working
    from polypscope.pipeline.known_scale import scale_course
    from polypscope.records.errors import UsageError
    from polypscope.runtime.console import say

    known = read_known_depths(table)
    if camera is None or ranger is None:
        missing = "a camera; give --camera or --fov" if camera is None else "a depth head; leave out --model"
        raise UsageError(f"--known-depths: expected a run that measures sizes, found one without {missing}.")
    working = Working.of((source.info.height, source.info.width), working_px)
    say(f"Reading up to frame {max(point.frame for point in known)} for the known depths.")
    return scale_course(source, known, working, camera, ranger)


def _report_settings(
    settings: dict[str, Any], models: Any, camera: Camera | None, name: str, scale: ScaleCourse | None = None
) -> dict[str, Any]:
    from polypscope import __version__

    follow = settings.pop("follow")
    shown = "none given: no sizes" if camera is None else f"{camera.lens}, {camera.fov_deg:.1f}° across"
    return {
        "source": name,
        "model": models.identity,
        "camera": shown,
        "scale of sizes": _scale_shown(scale),
        **settings,
        **{f"follow.{key}": value for key, value in follow.items()},
        "polypscope": __version__,
    }


def _scale_shown(scale: ScaleCourse | None) -> str:
    if scale is None:
        return "as the depth network sees it"
    count, ends = len(scale.ratios), dict.fromkeys(f"{end(scale.ratios):.2f}" for end in (min, max))
    return f"corrected by {count} known depth{'' if count == 1 else 's'}, {' to '.join(ends)} × the network's"


def size_shown(long_mm: float | None, low_mm: float | None, high_mm: float | None) -> tuple[str, str]:
    """Long axis and interval of a polyp in words; without an upper limit they are a lower bound.

    >>> size_shown(6.24, 5.1, None)
    ('at least 6.2', '5.1 or more')
    """
    if long_mm is None or low_mm is None:
        return "–" if long_mm is None else f"{long_mm:.1f}", "–"
    # Of a polyp that no frame shows whole, only a lower bound is known.
    if high_mm is None:
        return f"at least {long_mm:.1f}", f"{low_mm:.1f} or more"
    return f"{long_mm:.1f}", f"{low_mm:.1f}–{high_mm:.1f}"


def _show_video(summary: VideoSummary) -> None:
    from polypscope import DISCLAIMER
    from polypscope.runtime.console import note, say, show_table

    for text in summary.notes:
        note(text)
    rows = [
        (
            row["polyp"],
            f"{row['first_s']:.2f}",
            f"{row['last_s']:.2f}",
            row["frames_seen"],
            f"{row['confidence']:.2f}",
            *size_shown(row["long_mm"], row["low_mm"], row["high_mm"]),
            row["flags"] if isinstance(row["flags"], str) else " ".join(row["flags"]),
        )
        for row in summary.polyps
    ]
    columns = ("polyp", "first s", "last s", "frames", "confidence", "long mm", "interval mm", "flags")
    if rows:
        show_table(f"Polyps in {summary.name}", columns, rows)
    else:
        say(f"No polyp was found in {summary.name}.")
    say(f"{summary.frames} frames at {summary.frames_per_s:.1f} frames/s.")
    say(f"Report: {summary.report}")
    say(DISCLAIMER)
