"""The report of a segmentation benchmark: tables to paste into a paper, threshold curves, a leaderboard, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from polypscope.datasets.mask_folders import ATTRIBUTES, Problem
from polypscope.evaluation.bootstrap import Interval
from polypscope.evaluation.segmentation.clips import Result, Summary, summarise
from polypscope.evaluation.segmentation.compare import Comparison
from polypscope.evaluation.segmentation.spec import BINARY, CURVES, LOWER_IS_BETTER, OURS, TOOLBOX, Spec
from polypscope.report.page import Code, Facts, Figure, Fold, Note, Paragraph, Part, Section
from polypscope.report.plots import colour, line, new_figure
from polypscope.report.segmentation_leaderboard import published, subset_key
from polypscope.report.tables import Column, Table

HEADINGS: dict[str, tuple[str, str]] = {
    "Smeasure": ("S", r"$S_\alpha$"), "meanEm": ("mean E", r"$E_\phi^{mn}$"), "maxEm": ("max E", r"$E_\phi^{mx}$"),
    "adpEm": ("adaptive E", r"$E_\phi^{ad}$"), "wFmeasure": ("weighted F", r"$F_\beta^w$"),
    "meanFm": ("mean F", r"$F_\beta^{mn}$"), "maxFm": ("max F", r"$F_\beta^{mx}$"),
    "adpFm": ("adaptive F", r"$F_\beta^{ad}$"), "MAE": ("MAE", r"$\mathcal{M}$"), "maxDice": ("max Dice", "Dice"),
    "meanDice": ("mean Dice", "mDice"), "maxIoU": ("max IoU", "IoU"), "meanIoU": ("mean IoU", "mIoU"),
    "meanSen": ("mean Sen", "Sen"), "maxSen": ("max Sen", r"Sen$^{mx}$"), "meanSpe": ("mean Spe", "Spe"),
    "maxSpe": ("max Spe", r"Spe$^{mx}$"), "mDice": ("mDice", ""), "mIoU": ("mIoU", ""), "recall": ("Recall", ""),
    "precision": ("Precision", ""), "F1": ("F1", ""), "pooledDice": ("Dice, pooled", ""),
    "pooledIoU": ("IoU, pooled", ""), "pooledRecall": ("Recall, pooled", ""),
    "pooledPrecision": ("Precision, pooled", ""), "boundaryF": ("Boundary F (ours)", ""),
    "hausdorff95_px": ("Hausdorff-95 (ours, px)", ""), "flicker": ("Flicker of IoU (ours)", ""),
}  # fmt: skip


@dataclass
class Benchmark:
    """Everything that a report needs. Intervals are by (method, subset, measure)."""

    spec: Spec
    results: dict[str, Result]
    intervals: dict[tuple[str, str, str], Interval] = field(default_factory=dict)
    comparisons: dict[str, list[Comparison]] = field(default_factory=dict)
    problems: dict[str, list[Problem]] = field(default_factory=dict)
    command: str = ""

    def subsets(self) -> list[str]:
        """Subsets that any method was scored on, in order."""
        return list(dict.fromkeys(s for result in self.results.values() for s in result.subsets()))

    def summary(self, method: str, subset: str) -> Summary | None:
        """The scores of a method on a subset, or None when it has none there."""
        clips = [clip for clip in self.results[method].clips if clip.subset == subset]
        return summarise(clips, self.spec) if clips else None


def column(measure: str, digits: int, group: str = "") -> Column:
    """The table column of a measure."""
    heading, latex = HEADINGS.get(measure, (measure, ""))
    best = "low" if measure in LOWER_IS_BETTER else "high"
    return Column(measure, heading, 2 if measure == "hausdorff95_px" else digits, best, latex, group)


def subset_title(subset: str) -> str:
    """A subset's name for a caption.

    >>> subset_title("TestEasyDataset/Seen"), subset_title("")
    ('SUN-SEG-Easy (Seen)', 'all clips')
    """
    key = subset_key(subset)
    if "/" in key and key.split("/")[0] in ("Easy", "Hard"):
        level, scene = key.split("/")
        return f"SUN-SEG-{level} ({scene})"
    return subset or "all clips"


def score_table(bench: Benchmark, subset: str, measures: Sequence[str], caption: str, with_intervals: bool) -> Table:
    """Methods × measures on one subset."""
    rows = []
    for method in bench.results:
        summary = bench.summary(method, subset)
        if summary is None:
            continue
        row: dict[str, Any] = {"method": method, "clips": summary.clips, "frames": summary.frames}
        for measure in measures:
            interval = bench.intervals.get((method, subset, measure)) if with_intervals else None
            value = summary.values[measure]
            row[measure] = (value, interval.low, interval.high) if interval else value
        rows.append(row)
    columns = [Column("method", "Method"), *(column(m, bench.spec.decimals) for m in measures)]
    columns += [Column("clips", "Clips"), Column("frames", "Frames")]
    return Table(columns, rows, caption, label=f"{bench.spec.name}-{file_key(subset)}")


def deviation_table(bench: Benchmark, subset: str) -> Table:
    """Mean ± standard deviation over images of the binary measures."""
    rows = []
    for method in bench.results:
        summary = bench.summary(method, subset)
        if summary:
            cells = {
                m: f"{summary.values[m]:.{bench.spec.decimals}f} ± {summary.deviations[m]:.{bench.spec.decimals}f}"
                for m in BINARY
            }
            rows.append({"method": method, **cells})
    over = "clips" if bench.spec.average == "clips" else "images"
    columns = [Column("method", "Method"), *(Column(m, HEADINGS[m][0]) for m in BINARY)]
    return Table(columns, rows, f"Mean ± standard deviation over {over}, {subset_title(subset)}.")


def leaderboard(bench: Benchmark, subset: str) -> Table | None:
    """Methods scored here and published rows, ranked by the first headline measure that both have."""
    facts = published(bench.spec.name)
    rows_published = facts.on(subset) if facts else []
    if not facts or not rows_published:
        return None
    measures = [m for m in bench.spec.headline if m in rows_published[0].values]
    rows: list[dict[str, Any]] = [
        {"method": s.method, "origin": f"published, Table {s.table}", "_class": "published", **s.values}
        for s in rows_published
    ]
    for method in bench.results:
        summary = bench.summary(method, subset)
        if summary:
            scores = {m: float(np.round(summary.values[m], bench.spec.decimals)) for m in measures}
            rows.append({"method": method, "origin": "measured here", "_class": "ours", **scores})
    first = measures[0]
    sign = 1 if first in LOWER_IS_BETTER else -1
    rows.sort(key=lambda row: sign * row[first])
    for i, row in enumerate(rows):
        row["rank"] = i + 1
    columns = [Column("rank", "Rank"), Column("method", "Method")]
    columns += [column(m, bench.spec.decimals) for m in measures] + [Column("origin", "Origin")]
    caption = f"{subset_title(subset)}, ranked by {HEADINGS[first][0]}."
    counts = {s.clips for m in bench.results if (s := bench.summary(m, subset))}
    notes = [text for n in sorted(counts) if (text := facts.incomparable(subset, n))]
    return Table(columns, rows, caption, label=f"leaderboard-{file_key(subset)}", notes=notes)


def attribute_table(bench: Benchmark, subset: str) -> Table | None:
    """Structure measure of the clips that have each visual attribute, as the paper's Table 5."""
    rows: list[dict[str, Any]] = []
    for method, result in bench.results.items():
        row: dict[str, Any] = {"method": method, "origin": "measured here", "_class": "ours"}
        for attribute in ATTRIBUTES:
            clips = [clip for clip in result.clips if clip.subset == subset and attribute in clip.attributes]
            row[attribute] = summarise(clips, bench.spec).values["Smeasure"] if clips else None
        rows.append(row)
    if all(row[attribute] is None for row in rows for attribute in ATTRIBUTES):
        return None
    facts = published(bench.spec.name)
    for score in facts.attributes_on(subset) if facts else ():
        rows.append({"method": score.method, "origin": "published, Table 5", "_class": "published", **score.values})
    columns = [Column("method", "Method"), *(Column(a, a, 3, "high") for a in ATTRIBUTES), Column("origin", "Origin")]
    return Table(
        columns, rows, f"S by visual attribute, {subset_title(subset)}.", label=f"attributes-{file_key(subset)}"
    )


def comparison_table(bench: Benchmark, subset: str) -> Table | None:
    """Paired tests between the methods on one subset."""
    comparisons = bench.comparisons.get(subset, [])
    if not comparisons:
        return None
    rows = []
    for c in comparisons:
        rows.append(
            {
                "a": c.a,
                "b": c.b,
                "measure": HEADINGS[c.measure][0],
                "difference": (c.test.difference, c.test.low, c.test.high),
                "p": c.test.p,
                "p_holm": c.p_holm,
                "clusters": c.test.clusters,
            }
        )
    columns = [
        Column("a", "Method A"), Column("b", "Method B"), Column("measure", "Measure"),
        Column("difference", "A − B"), Column("p", "p", 4), Column("p_holm", "p, Holm", 4), Column("clusters", "Cases"),
    ]  # fmt: skip
    note = "p: permutation of the two methods within whole cases; interval: bootstrap of whole cases, 95 %."
    return Table(columns, rows, f"Differences between methods, {subset_title(subset)}.", notes=[note])


def curve_figure(curves: Mapping[str, np.ndarray], title: str) -> Any:
    """The six measures over all thresholds, a line per method; a dot marks the best threshold."""
    figure, axes = new_figure(10.2, 5.4, rows=2, columns=3)
    thresholds = np.linspace(1, 0, 256)
    long_names = {"E": "E measure", "F": "F measure", "Sen": "sensitivity", "Spe": "specificity"}
    for ax, name in zip(axes, ("Dice", "IoU", "Sen", "Spe", "E", "F"), strict=True):
        for i, (method, values) in enumerate(curves.items()):
            curve = values[CURVES.index(name)]
            ax.plot(thresholds, curve, color=colour(i), linestyle=line(i), linewidth=1.5, label=method)
            if name in ("Dice", "IoU", "F", "E") and not np.isnan(curve).any():
                top = int(curve.argmax())
                ax.plot(thresholds[top], curve[top], "o", color=colour(i), markersize=3.5)
        ax.set(xlim=(0, 1), ylim=(0, 1.02), ylabel=long_names.get(name, name))
    for ax in axes[3:]:
        ax.set_xlabel("threshold")
    figure.suptitle(title, fontsize=11)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), fontsize=8, frameon=False)
    return figure


def curve_figures(bench: Benchmark) -> dict[str, Any]:
    """Figures by file name (without ending), one per subset."""
    figures = {}
    for subset in bench.subsets():
        curves = {m: s.curves for m in bench.results if (s := bench.summary(m, subset)) is not None}
        figures[f"curves_{file_key(subset)}"] = curve_figure(curves, subset_title(subset))
    return figures


def curve_rows(bench: Benchmark) -> list[dict[str, Any]]:
    """The curves as rows of method, subset, threshold and the six measures, to plot them anew."""
    rows = []
    for subset in bench.subsets():
        for method in bench.results:
            if summary := bench.summary(method, subset):
                for j, values in enumerate(summary.curves.T.tolist()):
                    where = {"method": method, "subset": subset, "threshold": (255 - j) / 255}
                    rows.append({**where, **dict(zip(CURVES, values, strict=True))})
    return rows


def file_key(subset: str) -> str:
    """A subset's name as part of a file name or label.

    >>> file_key("TestHardDataset/Seen"), file_key("")
    ('hard-seen', 'all')
    """
    return subset_key(subset).replace("/", "-").replace(" ", "-").lower() or "all"


def paper_tables(bench: Benchmark) -> list[Table]:
    """Easy and Hard side by side, seen and unseen apart, published rows above: the paper's Tables 3 and 4."""
    facts = published(bench.spec.name)
    by_key = {subset_key(subset): subset for subset in bench.subsets()}
    found = []
    for scene, number in (("Seen", 3), ("Unseen", 4)):
        keys = [f"{level}/{scene}" for level in ("Easy", "Hard") if f"{level}/{scene}" in by_key]
        if not facts or len(keys) < 2 or not facts.on(keys[0]):
            continue
        measures = [m for m in bench.spec.headline if m in facts.on(keys[0])[0].values]
        rows: dict[str, dict[str, Any]] = {}
        for key in keys:
            for score in facts.on(key):
                row = rows.setdefault(score.method, {"method": f"{score.method} (published)", "_class": "published"})
                row.update({f"{key} {m}": score.values[m] for m in measures})
        for method in bench.results:
            row = {"method": method, "_class": "ours"}
            for key in keys:
                if summary := bench.summary(method, by_key[key]):
                    row.update({f"{key} {m}": summary.values[m] for m in measures})
            rows[f"here {method}"] = row
        columns = [Column("method", "Method")]
        for key in keys:
            for m in measures:
                c = column(m, bench.spec.decimals, subset_title(by_key[key]))
                columns.append(replace(c, key=f"{key} {m}"))
        caption = f"The two test sets with {scene.lower()} scenarios, laid out as the paper's Table {number}."
        found.append(Table(columns, list(rows.values()), caption, label=f"sunseg-{scene.lower()}"))
    return found


def tables(bench: Benchmark) -> list[tuple[str, Table]]:
    """Every table of the report with the section it stands in."""
    out: list[tuple[str, Table]] = [("Paper tables", table) for table in paper_tables(bench)]
    spec = bench.spec
    for subset in bench.subsets():
        what = "95 % intervals resample whole cases." if bench.intervals else ""
        caption = f"{subset_title(subset)}, protocol {spec.name}. {what}".strip()
        out.append(("Scores", score_table(bench, subset, spec.headline, caption, with_intervals=True)))
        if spec.name == "polypsense3d":
            out.append(("Scores", deviation_table(bench, subset)))
        if board := leaderboard(bench, subset):
            out.append(("Leaderboard", board))
        if test := comparison_table(bench, subset):
            out.append(("Comparison", test))
        if by_attribute := attribute_table(bench, subset):
            out.append(("Visual attributes", by_attribute))
        title = f"{subset_title(subset)}, the toolbox's list."
        out.append(("All measures", score_table(bench, subset, TOOLBOX, title, with_intervals=False)))
        ours = [m for m in OURS if m != "flicker" or any(c.is_video for r in bench.results.values() for c in r.clips)]
        title = f"{subset_title(subset)}, outlines and steadiness (ours, in no published protocol)."
        out.append(("Beyond the protocols", score_table(bench, subset, ours, title, with_intervals=True)))
    return out


def sections(bench: Benchmark, figures: Mapping[str, bytes]) -> list[Section]:
    """The report's sections; `figures` are those of `curve_figures` as SVG."""
    frames = max(sum(clip.frames for clip in result.clips) for result in bench.results.values())
    clips = max(len(result.clips) for result in bench.results.values())
    facts = {"Protocol": bench.spec.name, "Methods": str(len(bench.results)), "Clips": f"{clips:,}"}
    groups: dict[str, list[Part]] = {"Scores": [Facts({**facts, "Frames scored": f"{frames:,}"})]}
    if any(bench.problems.values()):
        count = sum(len(p) for p in bench.problems.values())
        groups["Scores"].append(Note(f"{count} remarks on the files: see Notes.", kind="warning"))
    for name, table in tables(bench):
        groups.setdefault(name, []).append(table)
    if known := published(bench.spec.name):
        for part in ("Paper tables", "Leaderboard", "Visual attributes"):
            if part in groups:
                groups[part].insert(
                    0, Note(f"Rows in grey are {known.note[0].lower()}{known.note[1:]} {known.source}.")
                )
    groups["Threshold curves"] = [
        Figure(svg, alt=f"Threshold {key.replace('_', ', ')}") for key, svg in figures.items()
    ]
    groups["Notes"] = _notes(bench)
    groups["Protocol"] = _protocol(bench)
    order = ["Scores", "Paper tables", "Leaderboard", "Comparison", "Threshold curves", "Visual attributes",
             "Beyond the protocols", "All measures", "Notes", "Protocol"]  # fmt: skip
    return [Section(name, groups[name]) for name in order if name in groups]


def _incomparable(bench: Benchmark, method: str, subset: str) -> str:
    facts, summary = published(bench.spec.name), bench.summary(method, subset)
    text = facts.incomparable(subset, summary.clips) if facts and summary else ""
    return f"{subset_title(subset)}: {text}" if text else ""


def _notes(bench: Benchmark) -> list[Part]:
    parts: list[Part] = []
    for method, problems in bench.problems.items():
        if not problems:
            continue
        counts = Counter(problem.kind for problem in problems)
        listed = ", ".join(f"{n} × {kind}" for kind, n in counts.items())
        texts = [problem.text for problem in problems[:200]]
        parts.append(Note(f"{method}: {listed}.", texts, kind="warning"))
        if len(problems) > 200:
            parts.append(Paragraph(f"{len(problems) - 200} further remarks are in summary.json."))
    return parts or [Paragraph("Every truth had its prediction, and every file could be read.")]


def _protocol(bench: Benchmark) -> list[Part]:
    rows = [{"field": name, "value": str(value)} for name, value in asdict(bench.spec).items()]
    how = (
        "Curves are averaged over the frames of a clip, then over clips"
        if bench.spec.average == "clips"
        else "Every frame counts once"
    )
    dropped = (
        f"; the first {bench.spec.drop_first} and last {bench.spec.drop_last} frame of each clip are left out"
        if bench.spec.drop_first or bench.spec.drop_last
        else ""
    )
    parts: list[Part] = [Paragraph(f"{how}{dropped}. The fields below are all that decides the numbers above.")]
    if bench.command:
        parts.append(Code(bench.command))
    table = Table([Column("field", "Field"), Column("value", "Value")], rows, copyable=False)
    return [*parts, Fold("Every field of the protocol", [table])]
