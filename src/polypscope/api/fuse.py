"""Combine several detectors into one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from polypscope.evaluation.detection import DetectionTable
    from polypscope.evaluation.fusion import Sigma
    from polypscope.evaluation.fusion_search import SearchResult

__all__ = ["Fusion", "fuse"]


@dataclass(frozen=True, eq=False)
class Fusion:
    """The combined detections, the width that was used, and the search if there was one."""

    table: DetectionTable
    sigma: Sigma | None
    search: SearchResult | None
    out: Path


def fuse(
    *methods: str,
    strategy: Literal["union", "saliency", "voting"] = "voting",
    sigma: str | None = None,
    sigma_from: Path | None = None,
    out: Path = Path("fused"),
    truth: Path | None = None,
    search: bool = False,
    sweep: str | None = None,
    size: str | None = None,
    ties: Literal["all", "first", "confidence"] = "all",
    one_vote_per_method: bool = False,
    metric: Literal["f1", "f2", "precision", "recall", "specificity"] = "f1",
    kind: Literal["auto", "videos", "stills"] = "auto",
    instances: Literal["components", "ids"] = "components",
    missing: Literal["refuse", "empty", "skip"] = "refuse",
    first_frame: int = 0,
    jobs: int = 2,
) -> Fusion:
    """Combine detectors by union, saliency map or voting; with --search try all subsets and rank them.

    A saliency map adds a Gaussian of width σ at every point of every method; the output of a frame is the map's highest
    pixel, found exactly and without filling an image. Voting does so only where at least half of the methods have an
    output (of two methods one is enough). Writes fused.csv, and combinations.csv and sweep.csv when asked for.

    Parameters
    ----------
    methods
        Two or more of PATH or NAME=PATH, as for `polypscope evaluate detection`.
    strategy
        "union" keeps every point, "saliency" one point per frame, "voting" one where the majority speaks.
    sigma
        Width of the Gaussians: "24px" or "3%" of the image diagonal. The paper does not state its own.
    sigma_from
        Take σ from training truth (masks or COCO): half the radius of its median polyp.
    out
        Folder for the results.
    truth
        Truth, to count hits and for --search; without it only the combined detections are written.
    search
        Try all subsets of the methods under all strategies and rank them by --metric (needs --truth).
    sweep
        Several widths, such as "1%,2%,3%,5%": how the combination of all methods depends on σ (needs --truth).
    size
        Frame size "WIDTHxHEIGHT" in pixels, where there is no truth and σ is a share of the diagonal.
    ties
        Which of several equal maxima to report: all, the first in reading order, or the one with most confidence.
    one_vote_per_method
        Divide a method's vote among its points, so that a talkative method does not outvote the others.
    metric
        What --search ranks by.
    kind
        Whether the truth is videos or stills.
    instances
        How the masks of the truth mark polyps.
    missing
        What a missing file of a video means: an error, a silent method, or a video to leave out.
    first_frame
        Number of the first frame in the CSVs.
    jobs
        Threads.
    """
    from polypscope.evaluation.fusion import Sigma, sigma_from_polyps
    from polypscope.evaluation.fusion import fuse as combine
    from polypscope.evaluation.fusion_search import search_combinations
    from polypscope.io.detection_methods import read_method
    from polypscope.io.detection_truth import StudyTruth, read_truth
    from polypscope.io.detections_csv import DetectionRow, write_detections_csv
    from polypscope.records.errors import UsageError
    from polypscope.runtime.console import note, say
    from polypscope.runtime.runlog import DISCLAIMER, RunLog

    if len(methods) < 2:
        raise UsageError(f"a combination needs at least two methods, found {len(methods)}; name their files.")
    if (search or sweep) and truth is None:
        raise UsageError("--search and --sweep count hits and misses, but no truth is given; add --truth.")
    if sigma is not None and sigma_from is not None:
        raise UsageError("--sigma and --sigma-from both set the width of the Gaussians; give one of them.")
    width = Sigma.parse(sigma) if sigma is not None else None
    if sigma_from is not None:
        width = sigma_from_polyps(read_truth(sigma_from, kind=kind, instances=instances, threads=jobs).table)
    if width is None and (strategy != "union" or search):
        raise UsageError(
            'saliency maps need the width of their Gaussians; give --sigma ("24px" or "3%") or --sigma-from.'
        )
    arguments = {"methods": methods, "strategy": strategy, "sigma": None if width is None else str(width), "ties": ties}
    arguments |= {"truth": truth, "search": search, "sweep": sweep, "one_vote_per_method": one_vote_per_method}
    with RunLog(out, "fuse", arguments) as log:
        if truth is not None:
            study = read_truth(truth, kind=kind, instances=instances, threads=jobs)
        else:
            if width is not None and width.unit == "diagonal" and size is None:
                raise UsageError(
                    "σ is a share of the image diagonal, but the size of the frames is unknown; "
                    'give --size "1920x1080", --truth, or --sigma in pixels.'
                )
            study = StudyTruth(_frames_of(methods, size, first_frame))
        files = [read_method(text, study, missing=missing, first_frame=first_frame, threads=jobs) for text in methods]
        for text in (*study.assumptions, *(text for file in files for text in file.assumptions)):
            note(text)
            log.add_note(text)
        tables = [file.table for file in files]
        options = {"ties": ties, "one_vote_per_method": one_vote_per_method}
        fused = combine(study.table, tables, strategy, sigma=width, **options)
        grid = study.table
        single = len(grid.videos) == 1
        stills = grid.kind == "stills"
        rows = [
            DetectionRow(
                frame=grid.frame_names[f] if stills and truth is not None else int(grid.index[f]) + first_frame,
                x=float(x),
                y=float(y),
                score=round(float(s), 6) if s == s else None,
                video=None if single else grid.videos[grid.video[f]],
            )
            for f, x, y, s in zip(fused.frame, fused.x, fused.y, fused.score, strict=True)
        ]
        write_detections_csv(out / "fused.csv", rows)
        say(f"{fused.name}: {len(rows)} detections in {int((fused.outputs > 0).sum())} of {grid.frame_count} frames.")
        found = None
        if truth is not None:
            _count(grid, [*tables, fused])
        if search:
            assert width is not None
            found = search_combinations(grid, tables, sigma=width, threads=jobs, **options)
            _write_search(out, found, metric)
        if sweep:
            _sweep(out, grid, tables, sweep, strategy, options)
        log.record(sigma=None if width is None else str(width), detections=len(rows))
    say(f"Written: {out}")
    say(DISCLAIMER)
    return Fusion(fused, width, found, out)


def _frames_of(methods, size, first_frame):  # type: ignore[no-untyped-def]
    """A grid of the frames that any method mentions, for fusing without truth; it knows no polyp."""
    import re

    from polypscope.evaluation.detection import TruthTableBuilder
    from polypscope.io.detection_methods import split_name
    from polypscope.io.detections_csv import read_detections_csv
    from polypscope.io.paths import list_files, natural_key
    from polypscope.records.errors import UsageError

    frames: dict[str, set[int]] = {}
    right = bottom = 0.0
    for text in methods:
        _, path = split_name(text)
        for file in list_files(path, (".csv", ".tsv", ".txt")) if path.is_dir() else [path]:
            for row in read_detections_csv(file, first_frame=first_frame).rows:
                if not isinstance(row.frame, int):
                    raise UsageError(
                        f"{file}, line {row.line}: frames have names, whose order only a truth tells; add --truth."
                    )
                video = row.video or (file.stem if path.is_dir() else "video")
                frames.setdefault(video, set()).add(row.frame)
                right, bottom = max(right, row.x or 0.0), max(bottom, row.y or 0.0)
    width, height = int(right) + 1, int(bottom) + 1
    if size is not None:
        match = re.fullmatch(r"\s*(\d+)\s*[x×,]\s*(\d+)\s*", size)
        if match is None:
            raise UsageError(f'--size: expected "WIDTHxHEIGHT" in pixels, found {size!r}; give "1920x1080".')
        width, height = int(match[1]), int(match[2])
    builder = TruthTableBuilder(timed=False)
    for video in sorted(frames, key=natural_key):
        builder.start_video(video)
        for index in sorted(frames[video]):
            builder.add_frame(index, float(index), height, width)
    return builder.build()


def _one(value: float) -> str:
    """One decimal, or a dash for what is undefined."""
    return f"{value:.1f}" if value == value else "–"


def _count(grid, tables) -> None:  # type: ignore[no-untyped-def]
    from polypscope.evaluation.detection import evaluate_detection
    from polypscope.runtime.console import show_table

    rows = []
    for m in evaluate_detection(grid, tables).methods:
        g = m.group("all")
        if g is not None:
            ratios = [_one(100 * g.micro[k]) for k in ("precision", "recall", "specificity", "f1", "f2")]
            rows.append((m.name, g.counts.tp, g.counts.fp, g.counts.tn, g.counts.fn, *ratios))
    show_table("All frames", ("method", "TP", "FP", "TN", "FN", "Prec %", "Rec %", "Spec %", "F1 %", "F2 %"), rows)


def _write_search(out: Path, found: SearchResult, metric: str) -> None:
    import polars as pl

    from polypscope.evaluation.fusion import STRATEGIES
    from polypscope.io.detection_results import combinations
    from polypscope.io.tables import write_table
    from polypscope.runtime.console import say, show_table

    rows = [{**row, "methods": " + ".join(row["methods"])} for row in combinations(found)["rows"]]
    write_table(out / "combinations.csv", pl.DataFrame(rows, infer_schema_length=None).fill_nan(None))
    shown = []
    for strategy in STRATEGIES:
        for c in found.ranked(strategy, metric)[:3]:
            ratios = [_one(100 * c.metrics[k]) for k in ("precision", "recall", "specificity", "f1", "f2")]
            shown.append((strategy, ", ".join(c.methods), c.counts.tp, c.counts.fp, c.counts.tn, c.counts.fn, *ratios))
    heads = ("strategy", "methods", "TP", "FP", "TN", "FN", "Prec %", "Rec %", "Spec %", "F1 %", "F2 %")
    show_table(f"Best subsets by {metric} (σ = {found.sigma})", heads, shown)
    say("The best subset is chosen on these very data, so it flatters itself; test it on others.")


def _sweep(out: Path, grid, tables, sweep: str, strategy: str, options) -> None:  # type: ignore[no-untyped-def]
    import polars as pl

    from polypscope.evaluation.detection import evaluate_detection
    from polypscope.evaluation.fusion import Sigma
    from polypscope.evaluation.fusion import fuse as combine
    from polypscope.io.tables import write_table
    from polypscope.runtime.console import show_table

    rows = []
    for text in sweep.split(","):
        width = Sigma.parse(text)
        table = combine(grid, tables, strategy, sigma=width, **options)  # type: ignore[arg-type]
        group = evaluate_detection(grid, [table]).methods[0].group("all")
        if group is not None:
            rows.append({"sigma": str(width), **vars(group.counts), **group.micro})
    write_table(out / "sweep.csv", pl.DataFrame(rows, infer_schema_length=None).fill_nan(None))
    shown = [(r["sigma"], r["tp"], r["fp"], *(_one(100 * r[k]) for k in ("precision", "recall", "f1"))) for r in rows]
    show_table(f"{strategy} by width", ("σ", "TP", "FP", "Prec %", "Rec %", "F1 %"), shown)
