"""The figures of the detection study: 6 (curves), 7 (latency), 5 (timeline), and survival and FROC beyond the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polypscope.evaluation.detection.groups import video_groups
from polypscope.evaluation.detection.study import DetectionResult
from polypscope.evaluation.detection.timing import survival_curve
from polypscope.report.plots import colour, line, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["curve_figures", "latency_figure", "survival_figure", "timeline_figure"]

_MARKERS = "osD^vP*X"


def _draw(ax: Axes, result: DetectionResult, x: str, y: str) -> None:
    """A line for a method with confidences, with its full operating point; a marker alone otherwise."""
    for i, m in enumerate(result.methods):
        xs, ys = _values(m.curves, x), _values(m.curves, y)
        marker = _MARKERS[i % len(_MARKERS)]
        if m.curves.is_curve:
            ax.plot(xs, ys, color=colour(i), linestyle=line(i), linewidth=1.4)
        ax.plot(xs[-1:], ys[-1:], marker, color=colour(i), markersize=6, label=m.name, linestyle="none")


def _values(curves: Any, name: str) -> np.ndarray:
    if name == "1 - specificity":
        return 1.0 - np.asarray(curves.specificity)
    return np.asarray(getattr(curves, name))


def curve_figures(result: DetectionResult) -> list[Figure]:
    """Figure 6 (precision–recall, ROC), FROC and the frame-presence ROC; ROCs only with frames without polyps."""
    unit_range = (-0.02, 1.02)
    per_minute = result.truth.timed
    plots = [("recall", "precision", "Precision–recall", "Recall", "Precision")]
    if bool((~result.truth.has_polyp).any()):
        plots.append(("1 - specificity", "recall", "ROC", "1 − specificity", "Recall"))
    label = "False positives per minute" if per_minute else "False positives per frame"
    plots.append(("fp_per_minute" if per_minute else "fp_per_frame", "recall", "FROC", label, "Recall"))
    if len(plots) == 3:
        heads = ("Presence, frame by frame", "Frames without polyp that fire", "Polyp frames that fire")
        plots.append(("presence_fpr", "presence_tpr", *heads))
    out = []
    for x, y, title, x_label, y_label in plots:
        figure, (ax,) = new_figure(4.6, 3.6)
        _draw(ax, result, x, y)
        ax.set(xlabel=x_label, ylabel=y_label, ylim=unit_range, title=title)
        if title == "FROC":
            ax.set_xscale("symlog", linthresh=1.0 if per_minute else 0.01)
            ax.set_xlim(left=0)
        else:
            ax.set_xlim(unit_range)
        if title.startswith("Presence"):
            ax.plot([0, 1], [0, 1], color="#bbbbbb", linewidth=0.8, linestyle=":")
        if title == "Precision–recall":
            ax.legend(fontsize=7, loc="lower left")
        out.append(figure)
    return out


def latency_figure(result: DetectionResult) -> Figure:
    """Figure 7: latency of every polyp for every method; a cross where it was never found."""
    polyps = [(t.video, t.polyp) for t in result.methods[0].timings if t.appearance == 0]
    for m in result.methods[1:]:
        polyps += [(t.video, t.polyp) for t in m.timings if t.appearance == 0 and (t.video, t.polyp) not in polyps]
    several = len({video for video, _ in polyps}) < len(polyps)
    names = [f"{video} #{polyp}" if several else video for video, polyp in polyps]
    figure, (ax,) = new_figure(max(6.0, 0.9 * len(polyps)), 3.6)
    width = 0.8 / len(result.methods)
    top = 1.0
    for i, m in enumerate(result.methods):
        found = {(t.video, t.polyp): t for t in m.timings if t.appearance == 0}
        xs = np.arange(len(polyps)) + (i - (len(result.methods) - 1) / 2) * width
        values = np.array([found[p].latency_frames if p in found else np.nan for p in polyps])
        top = max(top, float(np.nanmax(values)) if np.isfinite(values).any() else 1.0)
        ax.bar(xs, np.nan_to_num(values), width=width * 0.92, color=colour(i), label=m.name)
        missed = np.array([p in found and not found[p].found for p in polyps])
        ax.plot(xs[missed], np.zeros(int(missed.sum())), "x", color=colour(i), markersize=6, markeredgewidth=1.6)
        zero = np.isfinite(values) & (values == 0)
        ax.plot(xs[zero], np.zeros(int(zero.sum())), "_", color=colour(i), markersize=7, markeredgewidth=2)
    ax.set_xticks(np.arange(len(polyps)), names, rotation=30 if len(polyps) > 5 else 0, ha="right", fontsize=8)
    ax.set(ylabel="Latency (frames)", ylim=(-0.05 * top, 1.08 * top), title="Detection latency (× never found)")
    ax.legend(fontsize=7, ncols=3)
    return figure


def survival_figure(result: DetectionResult) -> Figure:
    """Share of polyps not yet found over time; misses are censored at the end of their exposure."""
    figure, (ax,) = new_figure(6.0, 3.6)
    seconds = result.truth.timed
    for i, m in enumerate(result.methods):
        whole = [t for t in m.timings if t.appearance == 0]
        latency = np.array([t.latency_s if seconds else t.latency_frames for t in whole])
        exposure = np.array([t.exposure_s if seconds else float(t.exposure_frames) for t in whole])
        curve = survival_curve(latency, exposure)
        end = float(max(np.nanmax(exposure, initial=0.0), 0.0))
        time = np.concatenate([[0.0], curve.time, [end]])
        share = np.concatenate([[1.0], curve.not_yet_found, [curve.not_yet_found[-1] if curve.time.size else 1.0]])
        ax.step(time, share, where="post", color=colour(i), linestyle=line(i), linewidth=1.4, label=m.name)
    ax.set(
        xlabel="Time since the polyp appeared (s)" if seconds else "Frames since the polyp appeared",
        ylabel="Polyps not yet found",
        ylim=(-0.02, 1.02),
        title="Survival of undetected polyps",
    )
    ax.set_xscale("symlog", linthresh=0.1 if seconds else 3)
    ax.set_xlim(left=0)
    ax.legend(fontsize=7)
    return figure


def timeline_figure(result: DetectionResult, *, most: int = 12) -> Figure | None:
    """Like Figure 5: for each video with a polyp, where it is visible and where each method hits or fires beside it."""
    truth = result.truth
    chosen = np.flatnonzero(video_groups(truth) != "no_polyp")[:most]
    if chosen.size == 0:
        return None
    rows = len(result.methods) + 1
    figure, axes = new_figure(9.0, 0.35 + 0.155 * rows * len(chosen) + 0.22 * len(chosen), rows=len(chosen))
    for ax, v in zip(axes, chosen, strict=True):
        frames = np.flatnonzero(truth.video == v)
        picture = np.ones((rows, len(frames), 3))
        shown = truth.has_polyp[frames]
        picture[0, shown] = (0.25, 0.25, 0.25)
        for i, m in enumerate(result.methods, start=1):
            fp, tp = m.counts.fp[frames] > 0, m.counts.tp[frames] > 0
            picture[i, shown] = (0.88, 0.88, 0.88)
            picture[i, fp & ~tp] = (0.84, 0.37, 0.0)
            picture[i, tp] = (0.0, 0.45, 0.70)
        index = truth.index[frames]
        ax.imshow(picture, aspect="auto", interpolation="nearest", extent=(index[0], index[-1] + 1, rows, 0))
        ax.set_yticks(np.arange(rows) + 0.5, ["polyp", *(m.name for m in result.methods)], fontsize=6)
        ax.tick_params(axis="x", labelsize=6, length=2)
        ax.tick_params(axis="y", length=0)
        ax.grid(False)
        ax.set_title(truth.videos[v], fontsize=7, loc="left", pad=2)
        ax.spines[:].set_visible(False)
    return figure
