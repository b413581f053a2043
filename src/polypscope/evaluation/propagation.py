"""Where the size error comes from: the 2 x 2 of true or predicted mask and true or predicted depth.

The paper quotes single cells of this table, some of which contradict its own tables; here all four are measured on the
same frames. Two more rows show what depth gets wrong: "oracle scale" multiplies the predicted depth of each frame by
the ratio of medians over the polyp, so that only its shape can err.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.size import CLINICAL, Bins, SizeResult, SizeRow, evaluate
from polypscope.geometry import caliper
from polypscope.geometry.conformal import Conformal
from polypscope.records import BinaryMask, Camera, DepthKind, DepthMap, PolypscopeError, SizeEstimate

__all__ = ["CELLS", "PolypView", "Propagation", "propagate"]

# name -> (mask, depth)
CELLS: Final[Mapping[str, tuple[str, str]]] = {
    "predicted mask, predicted depth": ("predicted", "predicted"),
    "true mask, predicted depth": ("true", "predicted"),
    "predicted mask, true depth": ("predicted", "true"),
    "true mask, true depth": ("true", "true"),
    "true mask, oracle scale": ("true", "oracle"),
    "predicted mask, oracle scale": ("predicted", "oracle"),
}


@dataclass(frozen=True, eq=False, slots=True)
class PolypView:
    """One polyp in one frame, as it is and as it was predicted; what was not predicted is None."""

    polyp: str
    true_mm: float
    camera: Camera
    true_mask: BinaryMask
    true_depth: DepthMap
    predicted_mask: BinaryMask | None
    predicted_depth: DepthMap | None
    doctor_mm: float | None = None
    group: str = ""
    field_of_view: NDArray[np.bool_] | None = None

    def renamed(self, polyp: str) -> PolypView:
        """The same view of a polyp under another name."""
        return replace(self, polyp=polyp)


@dataclass(frozen=True, slots=True)
class Propagation:
    """Sizes per polyp and cell; `lost` names the polyps that a cell could not measure at all."""

    sizes: SizeResult
    lost: Mapping[str, tuple[str, ...]]
    frames: int


def propagate(
    views: Iterable[PolypView],
    *,
    bins: Bins = CLINICAL,
    interval: Conformal | None = None,
) -> Propagation:
    """Measure every polyp in every cell, frame by frame, and combine the frames of each polyp.

    `interval` is the rule for the combined size with predictions; the caliper's default otherwise.
    """
    found: dict[str, dict[str, list[SizeEstimate]]] = {}
    facts: dict[str, PolypView] = {}
    frames = 0
    for view in views:
        frames += 1
        facts.setdefault(view.polyp, view)
        cells = found.setdefault(view.polyp, {name: [] for name in CELLS})
        for name, estimate in _measure_cells(view).items():
            cells[name].append(estimate)
    rows = []
    lost: dict[str, list[str]] = {name: [] for name in CELLS}
    for polyp, cells in found.items():
        first = facts[polyp]
        sizes: dict[str, SizeEstimate] = {}
        for name, estimates in cells.items():
            if estimates:
                sizes[name] = (
                    caliper.combine(estimates) if interval is None else caliper.combine(estimates, interval=interval)
                )
            else:
                lost[name].append(polyp)
        columns = {name: e.long_mm for name, e in sizes.items()}
        if first.doctor_mm is not None:
            columns["doctors"] = first.doctor_mm
        main = next((sizes[name] for name in CELLS if name in sizes), None)
        rows.append(
            SizeRow(
                polyp,
                first.true_mm,
                columns,
                None if main is None or next(iter(CELLS)) not in sizes else main.interval_mm,
                max(len(e) for e in cells.values()),
                () if main is None else main.flags,
                first.group,
            )
        )
    # The first column's interval is the one that is scored: order the columns as the cells are.
    ordered = [_ordered(row) for row in rows]
    return Propagation(evaluate(ordered, bins=bins), {k: tuple(v) for k, v in lost.items()}, frames)


def _measure_cells(view: PolypView) -> dict[str, SizeEstimate]:
    masks = {"true": view.true_mask, "predicted": view.predicted_mask}
    depths: dict[str, DepthMap | None] = {"true": view.true_depth, "predicted": view.predicted_depth}
    if view.predicted_depth is not None:
        depths["oracle"] = _oracle(view.true_depth, view.predicted_depth, view.true_mask)
    out = {}
    for name, (which_mask, which_depth) in CELLS.items():
        mask, depth = masks[which_mask], depths.get(which_depth)
        if mask is None or depth is None or depth.kind is DepthKind.RELATIVE:
            continue
        try:
            # A prediction that was read from a file may not say that it is one.
            inset = 1 if which_depth != "true" and depth.sigma is None else None
            out[name] = caliper.measure(mask, depth, view.camera, field_of_view=view.field_of_view, inset_px=inset)
        except PolypscopeError:
            continue  # an empty prediction is no measurement; the polyp is listed as lost if no frame has one
    return out


def _oracle(true: DepthMap, predicted: DepthMap, mask: BinaryMask) -> DepthMap | None:
    both = mask.values & true.valid & predicted.valid
    if not both.any():
        return None
    scale = np.float32(np.median(true.values[both]) / np.median(predicted.values[both]))
    sigma = None if predicted.sigma is None else predicted.sigma * scale
    return DepthMap(predicted.values * scale, true.kind, sigma)


def _ordered(row: SizeRow) -> SizeRow:
    order: Sequence[str] = [*CELLS, "doctors"]
    columns = {name: row.estimates_mm[name] for name in order if name in row.estimates_mm}
    return SizeRow(row.polyp, row.true_mm, columns, row.interval_mm, row.frames, row.flags, row.group)
