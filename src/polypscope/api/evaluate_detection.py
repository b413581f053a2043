"""Score polyp detectors by the MICCAI 2015 study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from polypscope.evaluation.detection import DetectionResult
    from polypscope.evaluation.fusion_search import SearchResult
    from polypscope.evaluation.statistics import Comparison

__all__ = ["DetectionReport", "detection"]


@dataclass(frozen=True, eq=False)
class DetectionReport:
    """What was measured, and the folder that holds it."""

    result: DetectionResult
    search: SearchResult | None
    comparisons: tuple[Comparison, ...]
    out: Path


def detection(
    truth: Path | None = None,
    *methods: str,
    out: Path = Path("detection-study"),
    kind: Literal["auto", "videos", "stills"] = "auto",
    instances: Literal["components", "ids"] = "components",
    rate_hz: float | None = None,
    criterion: Literal["point-in-mask", "point-in-box", "iou", "overlap"] = "point-in-mask",
    iou: float = 0.5,
    sigma: str | None = None,
    ties: Literal["all", "first", "confidence"] = "all",
    attributes: Path | None = None,
    challenges: Path | None = None,
    missing: Literal["refuse", "empty", "skip"] = "refuse",
    first_frame: int = 0,
    duplicates: Literal["refuse", "keep"] = "refuse",
    map_threshold: float = 0.5,
    map_point: Literal["centroid", "peak"] = "centroid",
    gallery: bool = False,
    images: Path | None = None,
    worst: int = 12,
    replicates: int = 1000,
    seed: int = 0,
    jobs: int = 2,
    example: bool = False,
) -> DetectionReport:
    """Score detectors by the MICCAI 2015 study: counts, latency, curves, alarms, breakdowns, statistics, report.

    Writes report.html, the tables in Markdown and LaTeX, frames.parquet and detections.parquet (every frame and every
    detection, to list the misses), videos.csv (for `polypscope compare`), polyps.csv, result.json and run.json.
    Frames without polyps always count: a method that fires there pays for it in every number.

    Parameters
    ----------
    truth
        Folder of masks (stills), folder with one folder of masks per video, or a COCO file.
    methods
        One or more of PATH or NAME=PATH: a CSV of detections (columns frame, x, y, optionally confidence, and video if
        there are several), a folder with one CSV per video, a COCO results file, or a folder of masks or heat maps.
    out
        Folder for the results.
    kind
        Whether frames are videos or stills; by default folders of folders are videos.
    instances
        How masks mark polyps: each 8-connected component is one, or grey values are ids that follow a polyp in time.
    rate_hz
        Frames per second, for truth without time stamps; without either, results are in frames only.
    criterion
        When a detection finds a polyp: its point in the mask (the paper's) or in the box, or by overlap of boxes/masks.
    iou
        Smallest intersection over union for the criterion "iou".
    sigma
        Width of the Gaussians for combining methods, "24px" or "3%" of the diagonal; given, all subsets of the methods
        are tried by union, saliency and voting, and the best are added to the tables. The paper does not state its σ.
    ties
        Which of several equal maxima of a saliency map to report.
    attributes
        Table with columns video (for stills: frame), paris and/or patient; patients are resampled as a whole.
    challenges
        Table of raters' labels: video, frame, rater, and columns of 0 and 1 for overlay, highlights, overexposed,
        content, lumen, incomplete, polyp_highlights, low_visibility.
    missing
        What a missing file of a video means: an error, a silent method, or a video that the method is not scored on.
    first_frame
        Number of the first frame in the CSVs (1 for tools that count from one).
    duplicates
        Whether repeated CSV rows are an error or kept (they cost as false positives where they miss).
    map_threshold
        Heat maps: from this value (0 to 1) on a pixel belongs to a detection.
    map_point
        Heat maps: report a region by its centroid or its highest pixel.
    gallery
        Also write gallery.html with the worst frames of each method, truth and detections drawn.
    images
        Folder of the frames, laid out and named like the masks, to draw the gallery on.
    worst
        Frames per method in the gallery.
    replicates
        Bootstrap draws of whole patients or videos.
    seed
        Of the bootstrap.
    jobs
        Threads for reading and for combining methods.
    example
        Make up a study of the paper's size (18 videos, 17,574 frames, six methods) and write its complete report.
    """
    from polypscope.evaluation.detection import DetectionSpec, evaluate_detection
    from polypscope.evaluation.fusion import Sigma
    from polypscope.evaluation.fusion_search import search_combinations
    from polypscope.io.detection_results import write_detection_results
    from polypscope.io.paths import write_text
    from polypscope.records.errors import UsageError
    from polypscope.report.detection import all_tables, study_comparisons, write_detection_report
    from polypscope.report.detection_gallery import write_detection_gallery
    from polypscope.runtime.console import note, say
    from polypscope.runtime.runlog import DISCLAIMER, RunLog

    if example and (truth is not None or methods):
        raise UsageError("--example makes up its own study; leave out the truth and the methods.")
    if not example and (truth is None or not methods):
        raise UsageError(
            "expected the truth and at least one method, found "
            f"{'nothing' if truth is None else 'no method'}; give TRUTH METHOD.csv, or --example to see a whole study."
        )
    width = Sigma.parse(sigma) if sigma is not None else None
    arguments = {k: v for k, v in locals().items() if k in _PARAMETERS}
    with RunLog(out, "evaluate detection", arguments) as log:
        assumptions: list[str] = []
        if example:
            table, tables, labels = _example(out / "example", seed)
            width = width or Sigma.parse("3%")
            gallery = True
            assumptions.append("everything here is made up: the truth, the methods and the raters")
        else:
            assert truth is not None
            table, tables, labels, assumptions = _read(
                truth,
                methods,
                kind,
                instances,
                rate_hz,
                attributes,
                challenges,
                jobs,
                missing=missing,
                first_frame=first_frame,
                duplicates=duplicates,
                map_threshold=map_threshold,
                map_point=map_point,
            )
            for path in (*methods, truth):
                if Path(str(path).partition("=")[2] or path).is_file():
                    log.add_input(Path(str(path).partition("=")[2] or path))
        for text in assumptions:
            note(text)
            log.add_note(text)
        spec = DetectionSpec(criterion=criterion, iou_threshold=iou, replicates=replicates, seed=seed)
        result = evaluate_detection(table, tables, spec=spec, labels=labels)
        search = None
        if width is not None and len(tables) > 1:
            search = search_combinations(table, tables, sigma=width, ties=ties, threads=jobs)
        elif len(tables) > 1:
            note("give --sigma, such as 3%, to add the combinations of methods to the tables")
        comparisons = tuple(study_comparisons(result))
        write_detection_results(out, result, search=search)
        for one in all_tables(result, search):
            write_text(out / "tables" / f"{one.label}.md", one.markdown() + "\n")
            write_text(out / "tables" / f"{one.label}.tex", one.latex() + "\n")
        if gallery:
            reader = _image_reader(images, table) if images is not None else None
            write_detection_gallery(out / "gallery.html", result, most=worst, image=reader)
        write_detection_report(
            out / "report.html",
            result,
            title="Example of a polyp detection study" if example else "Polyp detection study",
            search=search,
            comparisons=comparisons,
            assumptions=assumptions,
            gallery="gallery.html" if gallery else "",
        )
        log.record(frames=table.frame_count, videos=len(table.videos), methods=[t.name for t in tables])
    _show(result)
    for text in result.notes:
        note(text)
    for comparison in comparisons[:1]:
        say("\n".join(comparison.summary()))
    say(f"Report: {out / 'report.html'}")
    say(DISCLAIMER)
    return DetectionReport(result, search, comparisons, out)


_PARAMETERS = frozenset(detection.__annotations__) - {"return"}


def _read(truth, methods, kind, instances, rate_hz, attributes, challenges, jobs, **reading):  # type: ignore[no-untyped-def]
    """Truth, methods, labels and assumptions from files."""
    from polypscope.io.challenge_labels import read_challenge_labels
    from polypscope.io.detection_methods import read_method
    from polypscope.io.detection_truth import read_truth, with_attributes
    from polypscope.runtime.console import track

    study = read_truth(truth, kind=kind, instances=instances, rate_hz=rate_hz, threads=jobs)
    assumptions = list(study.assumptions)
    files = [read_method(text, study, threads=jobs, **reading) for text in track(methods, "reading", unit="methods")]
    for file in files:
        assumptions += file.assumptions
    table = study.table if attributes is None else with_attributes(study.table, attributes)
    labels = None if challenges is None else read_challenge_labels(challenges, table)
    return table, [file.table for file in files], labels, assumptions


def _example(folder: Path, seed: int):  # type: ignore[no-untyped-def]
    """The made-up study; its detections and labels are also written as files, to show their form."""
    from polypscope.evaluation.detection.synthetic import (
        PAPER_VIDEOS,
        example_methods,
        simulate_labels,
        simulate_method,
        simulate_truth,
    )
    from polypscope.io.challenge_labels import write_challenge_labels
    from polypscope.io.detections_csv import DetectionRow, write_detections_csv

    table = simulate_truth(PAPER_VIDEOS)
    tables = [simulate_method(table, PAPER_VIDEOS, method, seed=seed) for method in example_methods()]
    labels = simulate_labels(table, seed=seed)
    for one in tables:
        rows = [
            DetectionRow(
                frame=int(table.index[f]),
                x=round(float(x), 1),
                y=round(float(y), 1),
                score=round(float(s), 4) if s == s else None,
                video=table.videos[table.video[f]],
            )
            for f, x, y, s in zip(one.frame, one.x, one.y, one.score, strict=True)
            if x >= 0 and y >= 0
        ]
        write_detections_csv(folder / f"{one.name}.csv", rows)
    write_challenge_labels(folder / "challenges.csv", labels, table)
    return table, tables, labels


def _image_reader(images: Path, table):  # type: ignore[no-untyped-def]
    from polypscope.io.images import IMAGE_SUFFIXES, read_rgb
    from polypscope.io.paths import list_files, require_folder

    require_folder(images, "folder of frames")
    known: dict[Path, dict[str, Path]] = {}

    def read(row: int):  # type: ignore[no-untyped-def]
        video = images / table.videos[table.video[row]]
        folder = video if video.is_dir() else images
        if folder not in known:
            known[folder] = {file.stem: file for file in list_files(folder, IMAGE_SUFFIXES)}
        file = known[folder].get(table.frame_names[row])
        return None if file is None else read_rgb(file)

    return read


def _one(value: float) -> str:
    """One decimal, or a dash for what is undefined."""
    return f"{value:.1f}" if value == value else "–"


def _show(result: DetectionResult) -> None:
    from polypscope.runtime.console import show_table

    rows = []
    for m in result.methods:
        g = m.group("all")
        if g is None:
            continue
        ratios = [_one(100 * g.micro[k]) for k in ("precision", "recall", "specificity", "f1", "f2")]
        time = "–" if m.timing is None else f"{m.timing.found}/{m.timing.polyps}"
        late = "–" if m.timing is None else _one(m.timing.latency_frames_mean)
        alarms = f"{m.alarms[0].false_alarms_per_minute:.2f}" if m.alarms else "–"
        rows.append((m.name, g.counts.tp, g.counts.fp, g.counts.tn, g.counts.fn, *ratios, time, late, alarms))
    heads = (
        "method",
        "TP",
        "FP",
        "TN",
        "FN",
        "Prec %",
        "Rec %",
        "Spec %",
        "F1 %",
        "F2 %",
        "found",
        "latency",
        "false/min",
    )
    show_table("All frames", heads, rows)
