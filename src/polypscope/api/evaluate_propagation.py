"""From mask and depth to size: where the error comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from polypscope.evaluation.propagation import Propagation
    from polypscope.evaluation.size import SizeResult

__all__ = ["PropagationReport", "propagation"]


@dataclass(frozen=True, eq=False)
class PropagationReport:
    """All cells together, the same per subset, and the folder that holds them."""

    result: Propagation
    groups: tuple[tuple[str, SizeResult], ...]
    out: Path


def propagation(
    *truth: str,
    masks: Path | None = None,
    depth: Path | None = None,
    models: bool = True,
    doctors: Path | None = None,
    out: Path = Path("propagation"),
    every: int = 3,
    bins: Literal["clinical", "paper"] = "clinical",
    depth_unit: float | None = None,
) -> PropagationReport:
    """Show where size errors come from: true or predicted mask with true or predicted depth.

    Measures every polyp in all four cells, and with the predicted depth scaled right (oracle), over the frames of its
    sequence; adds the constant predictor and doctors' estimates where given; compares subsets (domain shift). Writes
    report.html, polyps.csv, scores.csv and run.json.

    Parameters
    ----------
    truth
        One or more data sets in the PolypSense3D layout, as PATH or NAME=PATH (for example clean=A clinical=B ct=C).
    masks
        Folder of predicted masks or probabilities SEQUENCE/STEM.png; without it the shipped segmenter is run.
    depth
        Folder of predicted depth maps SEQUENCE/STEM.png (16 bits) or .npy (mm); without it the shipped depth network
        is run.
    models
        Whether shipped models fill in for folders that are not given.
    doctors
        Table with columns polyp (SEQUENCE/ID) and doctor_mm.
    out
        Folder for the results.
    every
        Measure every n-th frame only; `analyze` measures every third.
    bins
        Size classes: clinical (≤ 5, 5–10, ≥ 10 mm) or those of the PolypSense3D paper.
    depth_unit
        Millimetres per stored step of predicted maps that do not say; 0.01 in 16-bit maps and 1 in arrays unless given.
    """
    import polars as pl

    from polypscope.api.evaluate_size import show_size_table
    from polypscope.evaluation import size as sizes
    from polypscope.evaluation.propagation import propagate
    from polypscope.io.tables import read_table, write_table
    from polypscope.pipeline.models import load_models
    from polypscope.pipeline.polyp_views import Predictions, polyp_views
    from polypscope.records.errors import InputError, UsageError
    from polypscope.report.measurement import SIMULATED, size_rows, write_propagation_page
    from polypscope.runtime.console import note, say, show_table, track
    from polypscope.runtime.runlog import DISCLAIMER, RunLog

    if not truth:
        raise UsageError("truth: expected at least one data set, found none; give PATH or NAME=PATH.")
    if depth_unit is not None and depth is None:
        raise UsageError("depth_unit: expected a folder of depth maps that it belongs to, found none; leave it out.")
    sets = [tuple(text.split("=", 1)) if "=" in text else (Path(text).name, text) for text in truth]
    classes = sizes.CLINICAL if bins == "clinical" else sizes.PAPER
    known = None
    if doctors is not None:
        table = read_table(doctors, columns=("polyp", "doctor_mm"))
        known = {str(r["polyp"]): float(r["doctor_mm"]) for r in table.iter_rows(named=True) if r["doctor_mm"]}
    running = load_models() if models and (masks is None or depth is None) else None
    predictions = Predictions(masks=masks, depth=depth, depth_unit=depth_unit, models=running)
    out = Path(out)
    arguments = {"truth": list(truth), "masks": masks, "depth": depth, "doctors": doctors, "out": out, "every": every}
    arguments["depth_unit"] = depth_unit
    with RunLog(out, "evaluate propagation", arguments) as log:
        if running is not None:
            log.record(models=running.identity)

        def views():  # type: ignore[no-untyped-def]
            for name, path in sets:
                for view in polyp_views(Path(path), predictions, every=every, doctors=known, group=name):
                    # The same sequence names occur in every subset.
                    yield view if len(sets) == 1 else view.renamed(f"{name}/{view.polyp}")

        result = propagate(track(views(), "measuring", unit="views"), bins=classes)
        groups = []
        for name, _ in sets:
            rows = [r for r in result.sizes.rows if r.group == name]
            if rows:
                groups.append((name, sizes.evaluate(rows, bins=classes)))
        if not result.sizes.rows:
            raise InputError(f"{truth[0]}: expected polyps with a size, found none; check the data set.")
        names = [c.column for c in result.sizes.columns if c.column != "constant"]
        write_table(
            out / "polyps.csv",
            pl.DataFrame(
                [
                    {
                        "polyp": r.polyp,
                        "set": r.group,
                        "frames": r.frames,
                        "true_mm": r.true_mm,
                        # The same order whatever the first polyp has: the interval is the first column's.
                        **{f"{name}_mm": r.estimates_mm.get(name) for name in names},
                        "low_mm": None if r.interval_mm is None else r.interval_mm[0],
                        "high_mm": None if r.interval_mm is None else r.interval_mm[1],
                        "flags": " ".join(r.flags),
                    }
                    for r in result.sizes.rows
                ],
                infer_schema_length=None,
            ),
        )
        scored = [{"set": name, **row} for name, part in groups for row in size_rows(part)]
        write_table(out / "scores.csv", pl.DataFrame(scored, infer_schema_length=None))
        write_propagation_page(out / "report.html", result, groups)
        log.record(views=result.frames, polyps=len(result.sizes.rows), scores=scored)
        log.add_note(SIMULATED)
    for name, part in groups:
        show_size_table(part, f"Size error: {name}", show_table)
    for cell, names in result.lost.items():
        if names and len(names) < len(result.sizes.rows):
            note(f"{cell}: {len(names)} polyps were not measured, for example {names[0]}")
    say(f"{out / 'report.html'} written. {SIMULATED} {DISCLAIMER}")
    return PropagationReport(result, tuple(groups), out)
