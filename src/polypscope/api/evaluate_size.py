"""Score polyp sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from polypscope.evaluation.size import SizeResult

__all__ = ["SizeReport", "size"]


@dataclass(frozen=True, eq=False)
class SizeReport:
    """What was measured, and the folder that holds it."""

    result: SizeResult
    out: Path


def size(
    sizes: Path,
    *,
    out: Path = Path("size-evaluation"),
    bins: Literal["clinical", "paper"] = "clinical",
) -> SizeReport:
    """Score polyp sizes against truth, per polyp: errors, size classes, agreement, intervals.

    Every table has the row of the constant predictor, which calls each polyp the median size. Writes report.html,
    scores.csv and run.json.

    Parameters
    ----------
    sizes
        Table with columns polyp and true_mm, one or more columns of estimates in mm (any other name ending in _mm, such
        as estimated_mm or doctor_mm), and optionally low_mm and high_mm, the interval of the first estimate, and flags:
        polyps flagged truncated or occluded, which no frame showed whole, are also left out of a row of their own.
    out
        Folder for the results.
    bins
        Size classes: clinical (≤ 5, 5–10, ≥ 10 mm) or those of the PolypSense3D paper (< 10, 10–20, > 20 mm).
    """
    import polars as pl

    from polypscope.evaluation import size as protocol
    from polypscope.io.tables import read_table, write_table
    from polypscope.records.errors import InputError
    from polypscope.report.measurement import SIMULATED, size_rows, write_size_page
    from polypscope.runtime.console import say, show_table
    from polypscope.runtime.runlog import DISCLAIMER, RunLog

    table = read_table(sizes, columns=("polyp", "true_mm"))
    names = [c for c in table.columns if c.endswith("_mm") and c not in ("true_mm", "low_mm", "high_mm")]
    if not names:
        raise InputError(f"{sizes}: expected a column of estimates such as estimated_mm, found none; add one.")
    names = [c for c in names if c != "doctor_mm"] + [c for c in names if c == "doctor_mm"]
    repeated = table["polyp"].is_duplicated()
    if repeated.any():
        first = table.filter(repeated)["polyp"][0]
        raise InputError(
            f"{sizes}: expected one row per polyp, found {first!r} more than once; combine the frames of a polyp first."
        )
    rows = []
    for row in table.iter_rows(named=True):
        try:
            estimates = {c.removesuffix("_mm"): float(row[c]) for c in names if row[c] is not None}
            known = row.get("low_mm") is not None and row.get("high_mm") is not None
            interval = (float(row["low_mm"]), float(row["high_mm"])) if known else None
            flags = tuple(str(row.get("flags") or "").replace(",", " ").split())
            rows.append(protocol.SizeRow(str(row["polyp"]), float(row["true_mm"]), estimates, interval, flags=flags))
        except (TypeError, ValueError):
            raise InputError(f"{sizes}: expected sizes in mm, found {row}; every polyp needs a true size.") from None
    out = Path(out)
    with RunLog(out, "evaluate size", {"sizes": sizes, "out": out, "bins": bins}) as log:
        log.add_input(sizes)
        result = protocol.evaluate(rows, bins=protocol.CLINICAL if bins == "clinical" else protocol.PAPER)
        write_table(out / "scores.csv", pl.DataFrame(size_rows(result)))
        write_size_page(out / "report.html", result)
        log.record(polyps=len(rows), scores=size_rows(result))
    show_size_table(result, "Sizes", show_table)
    say(f"{out / 'report.html'} written. {SIMULATED} {DISCLAIMER}")
    return SizeReport(result, out)


def show_size_table(result, title: str, show_table) -> None:  # type: ignore[no-untyped-def]
    """Print the scores of every column."""
    show_table(
        title,
        ("estimate", "polyps", "MAE mm", "bias mm", "median rel.", "size class", "coverage"),
        [
            (
                c.column,
                c.polyps,
                f"{c.mae_mm:.2f}",
                f"{c.bias_mm:+.2f}",
                f"{c.median_relative:.3f}",
                f"{c.bin_accuracy:.3f}",
                None if c.coverage != c.coverage else f"{c.coverage:.3f}",
            )
            for c in result.lines
        ],
    )
