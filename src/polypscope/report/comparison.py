"""A comparison of methods: words first, then intervals (Figures 8 and 11), rankings and the significance map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polypscope.evaluation.statistics import Comparison
from polypscope.report.page import Figure as PageFigure
from polypscope.report.page import Fold, Gallery, Note, Part, Section
from polypscope.report.plots import new_figure, render
from polypscope.report.tables import Column, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["comparison_section", "interval_figure", "ranking_figure", "significance_figure", "tests_table"]

_BEST, _ALIKE, _WORSE = "#0072B2", "#9a9a9a", "#D55E00"


def interval_figure(comparison: Comparison) -> Figure:
    """Comparison intervals as the paper draws them: best in blue, not shown to differ in grey, different in red."""
    o = comparison.omnibus
    names = list(comparison.methods)
    sign = 1 if comparison.higher_is_better else -1
    # Kruskal–Wallis compares mean ranks, where the best mean need not have the best rank.
    best = max(names, key=lambda n: sign * o.centre[n])
    p = {frozenset((pair.first, pair.second)): pair.p for pair in o.pairs}
    figure, (ax,) = new_figure(6.0, 0.9 + 0.38 * len(names))
    reach = o.half_width[best]
    ax.axvspan(o.centre[best] - reach, o.centre[best] + reach, color=_BEST, alpha=0.07, linewidth=0)
    for place, name in enumerate(reversed(names)):
        if name == best:
            shade = _BEST
        else:
            shade = _WORSE if p[frozenset((best, name))] < comparison.alpha else _ALIKE
        half = o.half_width[name]
        ax.plot([o.centre[name] - half, o.centre[name] + half], [place, place], color=shade, linewidth=2.2)
        ax.plot(o.centre[name], place, "o", color=shade, markersize=5)
    ax.set_yticks(range(len(names)), list(reversed(names)))
    ranks = "Kruskal" in o.test
    ax.set(xlabel=f"Mean rank of {comparison.metric}" if ranks else f"Mean {comparison.metric}", title=o.test)
    return figure


def significance_figure(comparison: Comparison) -> Figure:
    """The significance map: is the row's method better than the column's (paired Wilcoxon, one-sided, Holm)?"""
    names, p = comparison.methods, comparison.significance
    figure, (ax,) = new_figure(1.8 + 0.62 * len(names), 1.3 + 0.5 * len(names))
    shade = np.where(np.isnan(p), np.nan, np.where(p < comparison.alpha, 1.0, 0.0))
    ax.imshow(shade, cmap="Blues", vmin=0, vmax=2.2, aspect="auto")
    ax.set_facecolor("#ececec")  # the diagonal, where nothing is compared
    for i in range(len(names)):
        for j in range(len(names)):
            if i != j:
                text = "<.001" if p[i, j] < 0.001 else f"{p[i, j]:.3f}".lstrip("0") if p[i, j] < 1 else "1"
                ax.text(j, i, text, ha="center", va="center", fontsize=7)
    ax.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set_title("Row better than column (p)")
    ax.grid(False)
    return figure


def ranking_figure(comparison: Comparison) -> Figure:
    """How often each method takes each place when the clusters are drawn anew, for the three schemes."""
    schemes = comparison.rankings
    count = len(comparison.methods)
    figure, axes = new_figure(10.0, 1.3 + 0.42 * count, columns=len(schemes))
    for k, (ax, ranking) in enumerate(zip(axes, schemes, strict=True)):
        ax.imshow(ranking.frequency, cmap="Blues", vmin=0, vmax=1.15, aspect="auto")
        for i in range(count):
            for j in range(count):
                share = ranking.frequency[i, j]
                if share >= 0.005:
                    shade = "white" if share > 0.6 else "black"
                    ax.text(j, i, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=shade)
        ax.set_xticks(range(count), [str(n + 1) for n in range(count)], fontsize=8)
        ax.set_yticks(range(count), comparison.methods if k == 0 else [""] * count, fontsize=8)
        ax.set_xlabel("Place (% of draws)")
        tau = f"τ = {ranking.kendall_tau:.2f}" if np.isfinite(ranking.kendall_tau) else "separates nobody"
        ax.set_title(f"{ranking.scheme} ({tau})", fontsize=9)
        ax.grid(False)
    return figure


def means_table(comparison: Comparison) -> Table:
    """Mean with its bootstrap interval, and the place by each scheme."""
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(comparison.methods):
        mean = comparison.means[name]
        w, p = comparison.normality.groups[name]
        row: dict[str, Any] = {"method": name, "mean": (mean.estimate, mean.low, mean.high)}
        row |= {r.scheme: f"{r.rank[i]:g} [{r.low[i]:g}, {r.high[i]:g}]" for r in comparison.rankings}
        rows.append({**row, "w": w, "p": p})
    columns = [
        Column("method"),
        Column("mean", f"Mean {comparison.metric}", best="high" if comparison.higher_is_better else "low"),
        *(Column(r.scheme, r.scheme, group="Place [95 % of draws]") for r in comparison.rankings),
        Column("w", "W", group="Shapiro–Wilk"),
        Column("p", "p", group="Shapiro–Wilk"),
    ]
    return Table(columns, rows, caption=f"{comparison.metric}: means and places", label="comparison-means")


def tests_table(comparison: Comparison) -> Table:
    """Every pair: the study's test, and a permutation test that respects pairs and clusters."""
    rows = []
    for pair in comparison.omnibus.pairs:
        key = (pair.first, pair.second)
        paired = comparison.paired[key]
        rows.append(
            {
                "pair": f"{pair.first} – {pair.second}",
                "difference": (paired.difference, paired.low, paired.high),
                "p": pair.p,
                "paired": comparison.paired_p[key],
            }
        )
    columns = [
        Column("pair"),
        Column("difference", f"Difference of mean {comparison.metric}"),
        Column("p", f"p ({comparison.omnibus.test})", digits=4),
        Column("paired", "p (paired permutation, Holm)", digits=4),
    ]
    return Table(columns, rows, caption="Pairs of methods", label="comparison-pairs")


def comparison_section(comparison: Comparison, title: str = "") -> Section:
    """Words, figures and tables of one comparison as a section of a page."""
    first, *rest = comparison.summary()
    parts: list[Part] = [
        Note(first, rest),
        Gallery(
            [
                PageFigure(
                    render(interval_figure(comparison), "svg"),
                    caption=f"Comparison intervals of {comparison.metric}: bars that do not overlap differ "
                    "significantly. Blue: best; grey: not shown to differ from it; red: different (adjusted p).",
                ),
                PageFigure(
                    render(significance_figure(comparison), "svg"),
                    caption="Significance map: paired one-sided Wilcoxon tests, Holm-adjusted.",
                ),
            ]
        ),
        means_table(comparison),
        PageFigure(
            render(ranking_figure(comparison), "svg"),
            caption="Ranking stability: share of bootstrap draws of whole clusters in which a method takes each place.",
        ),
        Fold("All pairs", [tests_table(comparison)]),
    ]
    return Section(title or f"Is the difference in {comparison.metric} real?", parts)
