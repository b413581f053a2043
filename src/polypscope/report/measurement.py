"""Report parts for what is measured in mm: calibration picture, Bland–Altman plots, size, depth, propagation pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polypscope.evaluation import polypsense3d as published
from polypscope.evaluation.depth import METRICS, DepthResult
from polypscope.evaluation.propagation import Propagation
from polypscope.evaluation.size import SizeResult
from polypscope.report.page import Figure, Note, Paragraph, Part, Section, write_page
from polypscope.report.plots import colour, new_figure, render
from polypscope.report.tables import Column, Table

if TYPE_CHECKING:
    from polypscope.pipeline.calibration import Calibration

__all__ = [
    "SIMULATED",
    "bland_altman_plot",
    "calibration_picture",
    "size_columns",
    "size_sections",
    "write_depth_page",
    "write_propagation_page",
    "write_size_page",
]

SIMULATED = (
    "Millimetres of this software were developed and checked on simulated data only. On real recordings they are "
    "unproven."
)
_SHOWN_METRICS = {
    "rmse": "RMSE (mm)",
    "mae": "MAE (mm)",
    "absrel": "AbsRel",
    "sqrel": "SqRel (mm)",
    "log10": "log10",
    "rmselog": "RMSE log",
    "delta1": "δ < 1.25",
    "delta2": "δ < 1.25²",
    "delta3": "δ < 1.25³",
}


def bland_altman_plot(result: SizeResult, columns: Sequence[str] | None = None) -> bytes:
    """Difference against mean of each column, with bias and limits of agreement, as SVG."""
    names = list(columns or [c.column for c in result.columns if c.column != "constant"])[:4]
    figure, axes = new_figure(
        3.6 * min(len(names), 2), 3.0 * ((len(names) + 1) // 2), (len(names) + 1) // 2, min(len(names), 2)
    )
    for i, (name, ax) in enumerate(zip(names, axes, strict=False)):
        rows = [r for r in result.rows if name in r.estimates_mm]
        true = np.array([r.true_mm for r in rows])
        found = np.array([r.estimates_mm[name] for r in rows])
        ax.scatter((found + true) / 2, found - true, s=12, color=colour(i), alpha=0.7, linewidths=0)
        scored = result.column(name)
        if scored.agreement is not None:
            a = scored.agreement
            for value, style, text in ((a.bias, "-", "bias"), (a.low, "--", "95 % limits"), (a.high, "--", "")):
                ax.axhline(value, color="#444444", linewidth=0.9, linestyle=style)
                label = f"{text} {value:+.2f}" if text else f"{value:+.2f}"
                ax.annotate(
                    label, (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7
                )
        ax.set_title(name)
        ax.set_xlabel("mean of estimate and truth (mm)")
        ax.set_ylabel("estimate - truth (mm)")
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    return render(figure, "svg")


def size_columns() -> list[Column]:
    """Columns of a table of sizes."""
    return [
        Column("column", "estimate"),
        Column("polyps", digits=0),
        Column("mae_mm", "MAE", 2, "low", unit="mm"),
        Column("rmse_mm", "RMSE", 2, "low", unit="mm"),
        Column("bias_mm", "bias", 2, unit="mm"),
        Column("median_relative", "median relative error", 3, "low"),
        Column("within_20_percent", "within 20 %", 3, "high"),
        Column("bin_accuracy", "right size class", 3, "high"),
        Column("missed_10_mm", "≥ 10 called < 10", 3, "low"),
        Column("limits", "limits of agreement (mm)"),
        Column("coverage", "interval coverage", 3),
    ]


def size_rows(result: SizeResult) -> list[dict[str, Any]]:
    """One row for each column of estimates, and one for the polyps seen whole."""
    out = []
    for c in result.lines:
        row: dict[str, Any] = {k: getattr(c, k) for k in c.__slots__ if k not in ("confusion", "agreement")}
        for key in ("missed_10_mm", "coverage", "interval_ratio"):
            row[key] = None if np.isnan(row[key]) else row[key]
        row["limits"] = None if c.agreement is None else f"{c.agreement.low:+.2f} … {c.agreement.high:+.2f}"
        if c.column == "constant":
            row["column"], row["limits"] = "constant (median size)", None
        out.append(row)
    return out


def size_sections(result: SizeResult, *, title: str = "Sizes per polyp") -> list[Section]:
    """Scores, agreement, confusion and every polyp."""
    notes = [
        "One row per way of measuring, one unit per polyp. The constant predictor calls every polyp the median "
        "size: an estimate that is not clearly better has measured nothing."
    ]
    if result.whole is not None:
        notes.append("Seen whole: without polyps that every frame cuts off, of which only a part can be measured.")
    scored = Table(size_columns(), size_rows(result), notes=tuple(notes))
    parts: list[Part] = [scored]
    main = result.columns[0]
    names = result.bins.names
    confusion = Table(
        [Column("true", "true \\ estimated"), *(Column(n, f"{n} mm", 0) for n in names)],
        [
            {"true": f"{n} mm", **dict(zip(names, row, strict=True))}
            for n, row in zip(names, main.confusion, strict=True)
        ],
        caption=f"Size classes: {main.column}",
    )
    columns = [c.column for c in result.columns if c.column != "constant"]
    polyps = Table(
        [
            Column("polyp"),
            Column("group", "set"),
            Column("frames", digits=0),
            Column("true_mm", "true", 2, unit="mm"),
            *(Column(c, c, 2, unit="mm") for c in columns),
            Column("interval", "interval (mm)"),
            Column("flags"),
        ],
        [
            {
                "polyp": r.polyp,
                "group": r.group or None,
                "frames": r.frames or None,
                "true_mm": r.true_mm,
                **r.estimates_mm,
                "interval": None if r.interval_mm is None else f"{r.interval_mm[0]:.1f} … {r.interval_mm[1]:.1f}",
                "flags": ", ".join(r.flags) or None,
            }
            for r in result.rows
        ],
    )
    sections = [Section(title, parts), Section("Size classes", [confusion])]
    if any(c.agreement is not None for c in result.columns):
        caption = "Bland–Altman: each point is one polyp; solid is the bias, dashed the 95 % limits of agreement."
        sections.append(Section("Agreement", [Figure(bland_altman_plot(result), caption)]))
    sections.append(Section("Every polyp", [polyps]))
    return sections


def published_section() -> Section:
    """What others published, marked as theirs, with what does not add up."""
    parts: list[Part] = [
        Note(
            "Published figures, for orientation only: other data, other polyps, not measured here.",
            published.INCONSISTENCIES,
            "warning",
        )
    ]
    for table in (published.TABLE_4, published.TABLE_5, published.TABLE_6, published.TABLE_7, published.TABLE_8):
        keys = list(table.rows[0])
        columns = [
            Column(k, k.replace("tm_pd", "true mask, predicted depth").replace("pm_pd", "both predicted"), 3)
            for k in keys
        ]
        parts.append(Table(columns, [{**row, "_class": "published"} for row in table.rows], caption=table.title))
    parts.append(Paragraph(published.CITATION))
    return Section("Published elsewhere", parts)


def write_size_page(path: Path, result: SizeResult) -> Path:
    """`report.html` of `evaluate size`."""
    return write_page(path, "Polyp sizes against truth", [*size_sections(result), published_section()], lead=SIMULATED)


def write_propagation_page(path: Path, result: Propagation, groups: Sequence[tuple[str, SizeResult]]) -> Path:
    """`report.html` of `evaluate propagation`; `groups` are the same cells per subset (domain shift)."""
    sections = size_sections(result.sizes, title="Where the error comes from")
    lost = [f"{cell}: {len(names)} polyps not measured" for cell, names in result.lost.items() if names]
    if lost:
        sections[0] = Section(
            sections[0].title, [*sections[0].parts, Note("Polyps without a measurement", lost, "warning")]
        )
    if len(groups) > 1:
        rows = [{"set": name, **row} for name, sizes in groups for row in size_rows(sizes)]
        table = Table([Column("set"), *size_columns()], rows, notes=("The same models on each subset.",))
        sections.insert(1, Section("Domain shift", [table]))
    return write_page(path, "From mask and depth to size", [*sections, published_section()], lead=SIMULATED)


def write_depth_page(path: Path, result: DepthResult, *, sparse: bool = False, source: str = "") -> Path:
    """`report.html` of `evaluate depth`; `source` says where the predictions come from."""
    # No best value is marked: the rows are one prediction judged in several ways, not rivals.
    columns = [
        Column("alignment"),
        Column("region"),
        Column("frames", digits=0),
        *(Column(m, _SHOWN_METRICS[m], 3) for m in METRICS),
        Column("scale", "median scale", 3),
    ]
    notes = (
        "Per frame, then averaged. none: as predicted, in mm; median: each frame scaled by the ratio of medians; "
        "trajectory: one least-squares scale per sequence. near: true depth up to 100 mm.",
        *([source] if source else []),
    )
    parts: list[Part] = [Table(columns, result.summary, notes=notes)]
    if result.skipped:
        parts.append(Note(f"{len(result.skipped)} frames were left out", result.skipped[:20]))
    title = "Depth at known points" if sparse else "Depth against truth"
    return write_page(path, title, [Section(title, parts), published_section()], lead=SIMULATED)


def calibration_picture(result: Calibration) -> bytes:
    """Where the corners lay, how they miss (enlarged) and the error of each view, as PNG."""
    figure, (left, middle, right) = new_figure(11.0, 3.6, 1, 3)
    camera = result.camera
    used = [v for v in result.views if v.used]
    for ax in (left, middle):
        ax.set_xlim(-0.5, camera.width - 0.5)
        ax.set_ylim(camera.height - 0.5, -0.5)
        ax.set_aspect("equal")
    for i, view in enumerate(used):
        left.scatter(*view.corners_px.T, s=4, color=colour(i), linewidths=0)
    for view in result.dropped:
        left.scatter(*view.corners_px.T, s=6, color="#999999", marker="x", linewidths=0.6)
    left.set_title(f"coverage {result.coverage:.0%} (crosses: dropped views)")
    corners = np.concatenate([v.corners_px for v in used])
    misses = np.concatenate([v.residuals_px for v in used])
    factor = 0.06 * camera.width / max(float(np.quantile(np.linalg.norm(misses, axis=1), 0.95)), 1e-6)
    middle.quiver(
        *corners.T, *(factor * misses).T, angles="xy", scale_units="xy", scale=1, width=0.003, color=colour(0)
    )
    middle.plot(camera.cx, camera.cy, "+", color=colour(1), markersize=10)
    middle.set_title(f"misses × {factor:.0f}, RMS {result.rms_px:.2f} px")
    names = [v.name if len(v.name) <= 24 else v.name[:10] + "…" + v.name[-12:] for v in result.views]
    colours = [colour(0) if v.used else "#bbbbbb" for v in result.views]
    right.barh(range(len(names)), [v.error_px for v in result.views], color=colours)
    right.set_yticks(range(len(names)), names, fontsize=6)
    right.invert_yaxis()
    right.set_title("error of each view (px)")
    return render(figure, "png", dpi=130)
