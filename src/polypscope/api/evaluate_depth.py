"""Score predicted depth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polypscope.evaluation.depth import DepthResult

__all__ = ["DepthReport", "depth"]

_FAR_OFF = 8.0  # no network errs by such a factor in the middle, but cm and m do


@dataclass(frozen=True, eq=False)
class DepthReport:
    """What was measured, and the folder that holds it."""

    result: DepthResult
    out: Path


def depth(
    truth: Path,
    predicted: Path | None = None,
    *,
    out: Path = Path("depth-evaluation"),
    every: int = 1,
    near: float = 100.0,
    farthest: float | None = None,
    least_pixels: int | None = None,
    depth_unit: float | None = None,
    fast: bool = False,
) -> DepthReport:
    """Score predicted depth maps against truth, dense or at a few known points, in mm.

    RMSE, MAE, AbsRel, SqRel, log10, RMSE log and three δ accuracies, per frame and then averaged, for three alignments
    (none, median per frame, one scale per trajectory) over all pixels, polyps only and near ones. Writes report.html,
    frames.csv, summary.csv and run.json.

    Parameters
    ----------
    truth
        Data set in the PolypSense3D layout (dense), or a table of sequence, frame, x_px, y_px, depth_mm (points).
    predicted
        Folder of depth maps SEQUENCE/STEM.png (16 bits) or .npy (mm); without it the shipped depth network is run
        (dense truth only).
    out
        Folder for the results.
    every
        Score every n-th frame only.
    near
        Bound in mm of the region "near".
    farthest
        Leave out truth farther than this many mm.
    least_pixels
        Frames with fewer valid pixels are left out and listed: 10 for dense truth, 1 for sparse points unless given.
    depth_unit
        Millimetres per stored step of predicted maps that do not say; 0.01 in 16-bit maps and 1 in arrays unless given.
    fast
        Let the shipped network look at each frame once, as `polypscope analyze` does, instead of in all its flips and
        quarter turns, as `polypscope measure` does.
    """
    import polars as pl

    from polypscope.evaluation import depth as protocol
    from polypscope.io.tables import write_table
    from polypscope.pipeline.models import load_models
    from polypscope.pipeline.polyp_views import Predictions, depth_frames, sparse_frames
    from polypscope.records.errors import InputError, UsageError
    from polypscope.report.measurement import SIMULATED, write_depth_page
    from polypscope.runtime.console import note, say, show_table, track
    from polypscope.runtime.runlog import DISCLAIMER, RunLog

    sparse = Path(truth).suffix.lower() in (".csv", ".tsv", ".parquet")
    least = least_pixels if least_pixels is not None else (1 if sparse else 10)
    spec = protocol.Spec(least, near, float("inf") if farthest is None else farthest)
    arguments = {"truth": truth, "predicted": predicted, "out": out, "every": every, "spec": str(spec)}
    arguments |= {"depth_unit": depth_unit, "fast": fast}
    out, source = Path(out), ""
    if fast and predicted is not None:
        raise UsageError(
            f"fast: expected the shipped network to look, found predicted maps in {predicted}; leave one out."
        )
    if depth_unit is not None and predicted is None:
        raise UsageError("depth_unit: expected a folder of depth maps that it belongs to, found none; leave it out.")
    with RunLog(out, "evaluate depth", arguments) as log:
        if sparse:
            if predicted is None:
                raise UsageError("predicted: expected a folder of depth maps for sparse points, found none; give one.")
            frames = sparse_frames(Path(truth), Path(predicted), depth_unit)
        else:
            models = None if predicted is not None else load_models()
            if models is not None and models.ranger is None:
                raise UsageError("predicted: expected a folder of depth maps, found no depth network; give the folder.")
            if models is not None:
                log.record(models=models.identity)
                turned = "in all its flips and quarter turns, as polypscope measure does"
                looks = "once, as in a video" if fast else turned
                source = f"Predicted by the shipped network, which looked at each frame {looks}."
            # Masks are only asked for where models run anyway: the depth head reads the segmenter's features.
            predictions = Predictions(depth=predicted, depth_unit=depth_unit, models=models, careful=not fast)
            frames = depth_frames(Path(truth), predictions, every=every)
        result = protocol.evaluate(track(frames, "scoring", unit="frames"), spec)
        if not result.rows:
            raise InputError(f"{truth}: expected frames with both depths, found none; check both folders.")
        write_table(out / "frames.csv", pl.DataFrame(list(result.rows)))
        write_table(out / "summary.csv", pl.DataFrame(result.summary))
        write_depth_page(out / "report.html", result, sparse=sparse, source=source)
        log.record(summary=result.summary, skipped=len(result.skipped))
        log.add_note(SIMULATED)
    show_table(
        "Depth",
        ("alignment", "region", "frames", "RMSE mm", "MAE mm", "AbsRel", "δ<1.25"),
        [
            (r["alignment"], r["region"], r["frames"], *(f"{r[m]:.3f}" for m in ("rmse", "mae", "absrel", "delta1")))
            for r in result.summary
        ],
    )
    if source:
        note(source)
    wrong = next(r["scale"] for r in result.summary if r["alignment"] == "median")
    if predicted is not None and not 1 / _FAR_OFF < wrong < _FAR_OFF:
        note(
            f"the middle of a frame is {wrong:.3g} times as far as predicted; if that is a matter of units, give "
            "--depth-unit."
        )
    if result.skipped:
        note(f"{len(result.skipped)} frames were left out, for example {result.skipped[0]}")
    say(f"{out / 'report.html'} written. {SIMULATED} {DISCLAIMER}")
    return DepthReport(result, out)
