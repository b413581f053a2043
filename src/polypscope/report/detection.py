"""The report of a detection study: one page with the paper's tables and figures, and what lies beyond them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from polypscope.evaluation.detection.groups import video_groups
from polypscope.evaluation.detection.study import DetectionResult
from polypscope.evaluation.fusion_search import SearchResult
from polypscope.evaluation.statistics import Comparison, compare
from polypscope.evaluation.statistics.comparison import Missing
from polypscope.records.errors import UsageError
from polypscope.report import detection_figures as figures
from polypscope.report import detection_tables as tables
from polypscope.report.comparison import comparison_section
from polypscope.report.page import Facts, Figure, Gallery, Note, Paragraph, Part, Section, write_page
from polypscope.report.plots import render
from polypscope.report.tables import Table

__all__ = ["all_tables", "study_comparisons", "write_detection_report"]


def study_comparisons(result: DetectionResult) -> list[Comparison]:
    """The paper's comparisons: F1 over videos with polyps, latency of methods that find every polyp, concentration.

    Those that the data do not allow (one method, one video) are left out.
    """
    truth, spec = result.truth, result.spec
    wanted: list[tuple[np.ndarray, list[str], list[str], list[str], str, bool]] = []
    if truth.kind == "videos":
        with_polyps = np.flatnonzero(video_groups(truth) != "no_polyp")
        cases = [truth.videos[v] for v in with_polyps]
        patients = [truth.patients[v] if truth.patients else truth.videos[v] for v in with_polyps]
        names = [m.name for m in result.methods]
        for metric, title, higher in (("f1", "F1", True), ("latency_frames", "latency", False)):
            scores = np.stack([m.video_metrics[metric][with_polyps] for m in result.methods], axis=1)
            wanted.append((scores, names, cases, patients, title, higher))
    maps = {m.name: m.detections.concentration for m in result.methods if m.detections.concentration is not None}
    if maps:
        frames = np.flatnonzero(truth.has_polyp)
        ratios = np.stack([values[frames] for values in maps.values()], axis=1)
        if truth.kind == "stills":
            cases = [truth.frame_names[f] for f in frames]
            wanted.append((ratios, list(maps), cases, cases, "concentration ratio", True))
        else:  # frames of one video are near copies of each other, so its mean is one case
            means = np.stack([ratios[truth.video[frames] == v].mean(axis=0) for v in with_polyps])
            wanted.append((means, list(maps), cases, patients, "concentration ratio", True))
    out = []
    for scores, names, cases, clusters, title, higher in wanted:
        # As in the paper, latency is compared among the methods that find every polyp.
        missing: Missing = "drop-methods" if title == "latency" else "drop-cases"
        with suppress(UsageError):  # too few methods or cases: there is nothing to compare
            out.append(
                compare(
                    scores,
                    names,
                    cases,
                    metric=title,
                    clusters=clusters,
                    higher_is_better=higher,
                    missing=missing,
                    replicates=spec.replicates,
                    seed=spec.seed,
                )
            )
    return out


def all_tables(result: DetectionResult, search: SearchResult | None) -> list[Table]:
    """Every table of the report, in its order."""
    found: list[Table | None] = [*tables.group_tables(result, search)]
    if result.truth.kind == "videos":
        found += [tables.macro_table(result), tables.summary_table(result), tables.temporal_table(result)]
        found += [tables.alarm_table(result)]
    found += [tables.curve_table(result), tables.concentration_table(result), tables.morphology_table(result)]
    found += [tables.agreement_table(result), *tables.challenge_tables(result)]
    if search is not None and len(result.methods) > 1:
        found.append(tables.search_table(search))
    return [table for table in found if table is not None]


def write_detection_report(
    path: Path,
    result: DetectionResult,
    *,
    title: str = "Polyp detection study",
    search: SearchResult | None = None,
    comparisons: Sequence[Comparison] = (),
    assumptions: Sequence[str] = (),
    gallery: str = "",
    footer: str = "",
) -> Path:
    """Write the page."""
    truth = result.truth
    videos = truth.kind == "videos"
    facts = {
        "videos" if videos else "sets": f"{len(truth.videos):,}",
        "frames": f"{truth.frame_count:,}",
        "with polyp": f"{int(truth.has_polyp.sum()):,}",
        "polyp instances": f"{len(truth.polyp_id):,}",
        "methods": str(len(result.methods)),
    }
    duration_s = float(np.nansum(truth.duration_s))
    if truth.timed and duration_s > 0:
        facts["minutes"] = f"{duration_s / 60:.1f}"
    opening: list[Part] = [Facts(facts)]
    if result.notes:
        opening.append(Note("Before comparing rows:", result.notes, kind="warning"))
    if assumptions:
        opening.append(Note("Assumed about the files:", assumptions))
    opening.append(
        Paragraph(
            "TP and FN count polyps, FP counts detections (also beside a polyp in a polyp frame), TN counts frames "
            "without polyp and without output. Spec = TN / (TN + FP) mixes frames and detections, as in the paper; "
            "“frame spec” is the share of frames without polyp that stay silent."
        )
    )
    if gallery:
        opening.append(Paragraph(f"The worst frames of each method are drawn in {gallery}, in the same folder."))
    sections = [Section("Study", opening)]
    sections.append(Section("Counts and ratios", tables.group_tables(result, search)))
    sections.append(Section("Curves", _curves(result)))
    if videos:
        sections.append(Section("Time", _time(result)))
    morphology, agreement = tables.morphology_table(result), tables.agreement_table(result)
    if morphology is not None:
        sections.append(Section("Polyp morphology", [morphology]))
    if agreement is not None:
        text = (
            "Performance on frames with a challenge minus performance on frames without it, with 95 % of bootstrap "
            "draws of whole videos in brackets. An interval that holds 0 shows no effect. Challenges are not assigned "
            "at random, so a difference need not be caused by the challenge."
        )
        sections.append(Section("Image challenges", [agreement, Paragraph(text), *tables.challenge_tables(result)]))
    concentration = tables.concentration_table(result)
    if concentration is not None:
        sections.append(Section("Concentration", [concentration]))
    if search is not None and len(result.methods) > 1:
        sections.append(Section("Combinations of methods", [tables.search_table(search)]))
    sections += [comparison_section(c) for c in comparisons]
    return write_page(path, title, sections, lead=_lead(result), footer=footer)


def _lead(result: DetectionResult) -> str:
    scored = [(m.name, g) for m in result.methods if (g := m.group("all")) is not None]
    name, best = max(scored, key=lambda pair: np.nan_to_num(pair[1].micro["f1"], nan=-1.0))
    m = best.micro
    text = f"Highest pooled F1: {name}, {100 * m['f1']:.1f} % (precision {100 * m['precision']:.1f} %, recall "
    return text + f"{100 * m['recall']:.1f} %). Protocol: MICCAI 2015 (Bernal et al., IEEE TMI 36(6), 2017)."


def _curves(result: DetectionResult) -> list[Part]:
    caption = (
        "Lines for methods with a confidence for every detection, a marker for the operating point of each method. "
        "Every false positive on frames without polyps counts."
    )
    drawn = [Figure(render(figure, "svg"), alt=figure.axes[0].get_title()) for figure in figures.curve_figures(result)]
    parts: list[Part] = [Gallery(drawn), Paragraph(f"{caption} (Figure 6 in form, and beyond)")]
    table = tables.curve_table(result)
    return parts if table is None else [*parts, table]


def _time(result: DetectionResult) -> list[Part]:
    parts: list[Part] = [tables.summary_table(result)]
    if len(result.truth.polyp_id):
        latency = Figure(
            render(figures.latency_figure(result), "svg"),
            caption="Detection latency of every polyp (Figure 7 in form).",
        )
        survival = Figure(
            render(figures.survival_figure(result), "svg"),
            caption="Share of polyps not yet found; polyps that were never found leave as censored, not as missing.",
        )
        parts.append(Gallery([latency, survival]))
    parts.append(tables.temporal_table(result))
    timeline = figures.timeline_figure(result)
    if timeline is not None:
        caption = "Black: polyp in view. Blue: hit. Light grey: missed. Orange: output without a hit."
        parts.append(Figure(render(timeline, "svg", dpi=120), caption=caption))
    alarms = tables.alarm_table(result)
    parts += [] if alarms is None else [alarms]
    return [*parts, tables.macro_table(result)]
