"""The look of every plot, and how a matplotlib figure becomes SVG or PNG without any global state."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by readers with colour-vision deficiencies, and in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000")
LINES = ("-", "--", "-.", ":")


def new_figure(
    width_in: float = 6.0, height_in: float = 3.6, rows: int = 1, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """A figure with tidy axes, row by row; sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(rows, columns, i + 1) for i in range(rows * columns)]
    for ax in axes:
        tidy(ax)
    return figure, axes


def tidy(ax: Axes) -> None:
    """Two spines, a light grid behind the data, small ticks."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8, length=3)
    ax.xaxis.label.set_size(9)
    ax.yaxis.label.set_size(9)
    ax.title.set_size(10)


def colour(i: int) -> str:
    """The i-th line colour; after the palette is used up the line style changes as well (`line`)."""
    return COLOURS[i % len(COLOURS)]


def line(i: int) -> str:
    """The i-th line style."""
    return LINES[(i // len(COLOURS)) % len(LINES)]


def render(figure: Figure, form: Literal["svg", "png", "pdf"], dpi: int = 160) -> bytes:
    """The figure as a file. SVG text stays text, so that it can be searched, restyled and read aloud."""
    import matplotlib

    out = io.BytesIO()
    # A fixed salt and no date: the same data give the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "polypscope"}):
        metadata = {"Date": None} if form == "svg" else {"CreationDate": None} if form == "pdf" else {"Software": None}
        figure.savefig(out, format=form, dpi=dpi, metadata=metadata)
    return out.getvalue()
