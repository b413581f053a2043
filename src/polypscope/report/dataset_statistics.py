"""Pictures of data sets side by side: centre bias, size, position, contrast, attributes (SUN-SEG's Figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polypscope.datasets.mask_folders import ATTRIBUTES
from polypscope.report.page import Figure, Gallery, Note, Paragraph, Part, Section
from polypscope.report.plots import colour, line, new_figure
from polypscope.report.tables import Column, Table

DISTRIBUTIONS = {
    "share": "polyp size (share of the image)",
    "centre_distance": "distance of the polyp's centroid from the image's centre",
    "far_distance": "distance of the polyp's farthest pixel from the centre",
    "global_contrast": "global contrast",
    "local_contrast": "local contrast",
}


@dataclass(frozen=True)
class SubsetStatistics:
    """One subset: mean mask (64, 64), values by name for frames with a polyp, attribute counts over clips."""

    name: str
    clips: int
    frames: int
    positives: int
    centre_bias: np.ndarray
    values: Mapping[str, np.ndarray]
    attributes: Mapping[str, int]


def centre_figure(subsets: Sequence[SubsetStatistics]) -> Any:
    """The mean mask of each subset, brighter where polyps are more often."""
    columns = min(4, len(subsets))
    rows = -(-len(subsets) // columns)
    figure, axes = new_figure(2.6 * columns + 0.6, 2.5 * rows + 0.3, rows, columns)
    top = max(float(s.centre_bias.max()) for s in subsets) or 1.0
    for ax in axes[len(subsets) :]:
        ax.set_visible(False)
    image = None
    for ax, subset in zip(axes, subsets, strict=False):
        ax.grid(False)
        image = ax.imshow(subset.centre_bias, cmap="viridis", vmin=0.0, vmax=top, interpolation="bilinear")
        ax.set(xticks=[], yticks=[], title=subset.name or "all")
    figure.colorbar(image, ax=axes, shrink=0.8, label="share of frames with a polyp here")
    return figure


def distribution_figure(subsets: Sequence[SubsetStatistics], name: str) -> Any | None:
    """Share of frames by value, a line per subset; None when no subset has values."""
    known = [(i, s, s.values[name][~np.isnan(s.values[name])]) for i, s in enumerate(subsets) if name in s.values]
    known = [(i, s, values) for i, s, values in known if len(values)]
    if not known:
        return None
    figure, (ax,) = new_figure(5.0, 3.1)
    top = max(float(values.max()) for _, _, values in known)
    edges = np.linspace(0, min(1.0, top * 1.02) or 1.0, 31)
    for i, subset, values in known:
        share, _ = np.histogram(values, edges)
        middles = (edges[:-1] + edges[1:]) / 2
        style = {"color": colour(i), "linestyle": line(i), "linewidth": 1.5, "label": subset.name or "all"}
        ax.plot(middles, share / len(values), **style)
    ax.set(xlabel=DISTRIBUTIONS[name], ylabel="share of frames", xlim=(0, edges[-1]), ylim=(0, None))
    ax.legend(fontsize=8, frameon=False)
    return figure


def attribute_figure(subsets: Sequence[SubsetStatistics]) -> Any | None:
    """Clips with each visual attribute, a bar per subset."""
    known = [s for s in subsets if any(s.attributes.values())]
    if not known:
        return None
    figure, (ax,) = new_figure(6.4, 3.1)
    width = 0.8 / len(known)
    at = np.arange(len(ATTRIBUTES))
    for i, subset in enumerate(known):
        counts = [subset.attributes.get(name, 0) for name in ATTRIBUTES]
        ax.bar(at + (i - (len(known) - 1) / 2) * width, counts, width, color=colour(i), label=subset.name or "all")
    ax.set_xticks(at, ATTRIBUTES)
    ax.set_ylabel("clips")
    ax.grid(False, axis="x")
    ax.legend(fontsize=8, frameon=False)
    return figure


def figures(subsets: Sequence[SubsetStatistics]) -> dict[str, Any]:
    """All figures that the data allow, by file name without ending."""
    found = {"centre_bias": centre_figure(subsets), "attributes": attribute_figure(subsets)}
    found |= {name: distribution_figure(subsets, name) for name in DISTRIBUTIONS}
    return {name: figure for name, figure in found.items() if figure is not None}


def table(subsets: Sequence[SubsetStatistics]) -> Table:
    """One row per subset: counts, and median with quartiles of each statistic."""
    rows = []
    for s in subsets:
        row: dict[str, Any] = {"name": s.name or "all", "clips": s.clips, "frames": s.frames, "positives": s.positives}
        for name, values in s.values.items():
            finite = values[~np.isnan(values)]
            row[name] = tuple(np.percentile(finite, [50, 25, 75]).tolist()) if len(finite) else None
        rows.append(row)
    columns = [Column("name", "Subset"), Column("clips", "Clips"), Column("frames", "Frames")]
    columns += [Column("positives", "With polyp")]
    headings = {"share": "Size", "centre_distance": "Centre distance", "far_distance": "Far distance",
                "global_contrast": "Global contrast", "local_contrast": "Local contrast"}  # fmt: skip
    columns += [Column(name, heading) for name, heading in headings.items()]
    return Table(columns, rows, "Median and quartiles over frames with a polyp.", label="statistics")


def sections(subsets: Sequence[SubsetStatistics], pictures: Mapping[str, bytes], notes: Sequence[str]) -> list[Section]:
    """The report: table, pictures (as SVG, from `figures`), definitions and notes."""
    titles = {"centre_bias": "Mean mask: where polyps lie.", "attributes": "Clips by visual attribute."}
    titles |= {name: f"{text[0].upper()}{text[1:]}." for name, text in DISTRIBUTIONS.items()}
    wide = [name for name in pictures if name in ("centre_bias", "attributes")]
    gallery: list[Part] = [Figure(pictures[name], titles[name]) for name in wide]
    gallery.append(Gallery([Figure(svg, titles[name]) for name, svg in pictures.items() if name not in wide]))
    words = (
        "Distances are shares of half the image diagonal. Contrast is the chi-squared distance between 16-bin colour "
        "histograms of the polyp and of all else (global) or of a ring half an equivalent radius wide (local)."
    )
    parts: list[Part] = [Paragraph(words)]
    if notes:
        parts.append(Note("Remarks on the files.", list(notes)[:200], kind="warning"))
    overview = Section("Overview", [table(subsets)])
    return [overview, Section("Pictures", gallery), Section("Definitions and notes", parts)]
