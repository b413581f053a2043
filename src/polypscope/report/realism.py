"""Simulated frames beside real ones: the bands of every statistic, and the pictures themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw_realism"]


def draw_realism(
    path: Path,
    bands: dict[str, dict[str, tuple[float, float, float]]],
    pictures: dict[str, list[NDArray[np.uint8]]],
    simulated: str,
) -> Path:
    """Write one PNG: a row of pictures per source, and below it one panel per statistic.

    Parameters
    ----------
    path: where to write.
    bands: by source, then by statistic: 10th percentile, median, 90th percentile.
    pictures: by source, uint8 [H, W, 3] each; every row shows as many as the shortest list has.
    simulated: which source is the simulation; it is drawn in another colour.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = list(next(iter(bands.values())))
    across = min(8, min(len(p) for p in pictures.values()))
    figure = Figure(figsize=(14, 1.8 * len(pictures) + 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subfigures(2, 1, height_ratios=[1.8 * len(pictures), 5.0])
    cells: Any = upper.subplots(len(pictures), across, squeeze=False)
    for line, (name, shown) in zip(cells, pictures.items(), strict=True):
        for axis, picture in zip(line, shown, strict=False):
            axis.imshow(picture)
            axis.set_xticks([])
            axis.set_yticks([])
            for spine in axis.spines.values():
                spine.set_visible(False)
        line[0].set_ylabel(name, fontsize=11, color="#c2410c" if name == simulated else "#1f2937")
    panels: Any = lower.subplots(2, 5)
    names = list(bands)
    for axis, row in zip(panels.ravel(), rows, strict=True):
        for k, name in enumerate(names):
            low, middle, high = bands[name][row]
            colour = "#c2410c" if name == simulated else "#2563eb"
            axis.plot([low, high], [k, k], color=colour, lw=5, alpha=0.35, solid_capstyle="butt")
            axis.plot([middle], [k], "o", color=colour, ms=6)
        axis.axvline(bands[simulated][row][1], color="#c2410c", lw=0.8, ls=":")
        axis.set_title(row, fontsize=10)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.set_yticks(range(len(names)), names if axis in panels[:, 0] else [""] * len(names), fontsize=9)
        axis.tick_params(axis="x", labelsize=8)
        axis.grid(axis="x", alpha=0.25)
    lower.suptitle("10th to 90th percentile and median over frames, inside the field of view at 320 px", fontsize=10)
    figure.savefig(path, dpi=110)
    return path
