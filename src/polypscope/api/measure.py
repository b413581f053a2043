"""Measure polyps in millimetres: from mask and depth, or from biopsy forceps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import polars as pl

    from polypscope.evaluation.agreement import Agreement, Consensus
    from polypscope.geometry.forceps import Contact
    from polypscope.records import SizeEstimate

__all__ = ["ForcepsReport", "Measured", "forceps", "image"]


@dataclass(frozen=True)
class Measured:
    """The size of one polyp, and the file that holds it, if one was asked for."""

    size: SizeEstimate
    out: Path | None


@dataclass(frozen=True, eq=False)
class ForcepsReport:
    """Every annotation's measurement, the consensus of each polyp, and how well the annotators agree."""

    rows: tuple[dict[str, Any], ...]
    consensus: dict[str, Consensus]
    agreement: Agreement | None
    failures: tuple[str, ...]
    out: Path

    @property
    def exit_code(self) -> int:
        """1 when an annotation could not be used."""
        return 1 if self.failures else 0


def image(
    picture: Path,
    *,
    mask: Path,
    depth: Path | None = None,
    camera: Path | None = None,
    fov: float | None = None,
    lens: Literal["pinhole", "fisheye"] = "pinhole",
    depth_unit: float | None = None,
    polyp: int | None = None,
    out: Path | None = None,
) -> Measured:
    """Measure a polyp in one picture from its mask, its depth and the camera: long and short axis in mm.

    The long axis is the largest 3D extent of the polyp above the wall, hidden parts estimated; the interval covers 90 %
    of simulated polyps. Anything that makes the size less certain is flagged. Sizes are checked on simulated data only.

    Parameters
    ----------
    picture
        The picture; it decides whether the polyp is blurred, and it is what the depth network sees.
    mask
        Mask of the polyp, white on black, or a map of polyp ids (then --polyp chooses one).
    depth
        16-bit depth map or NumPy array (.npy, in mm) of the same size; without it the shipped depth network estimates
        one.
    camera
        camera.json of the scope, as `polypscope calibrate` and `polypscope simulate` write it; needed unless --fov is
        given. A camera.json beside the picture is used without asking.
    fov
        Horizontal field of view in degrees, if there is no calibration.
    lens
        Lens model that goes with --fov.
    depth_unit
        Millimetres per stored step, for depth maps that do not say; 0.01 in maps of this software, 1 in arrays.
    polyp
        Which id of the mask to measure; by default all that is not black.
    out
        JSON file for the result.
    """
    import json

    from polypscope.geometry import caliper
    from polypscope.io.depth import read_depth
    from polypscope.io.images import read_rgb
    from polypscope.io.masks import read_instances
    from polypscope.io.paths import write_text
    from polypscope.pipeline.inputs import camera_beside, camera_for
    from polypscope.records import BinaryMask
    from polypscope.records.errors import UsageError
    from polypscope.report.measurement import SIMULATED
    from polypscope.runtime.console import note, say
    from polypscope.runtime.depth import DepthEstimator
    from polypscope.runtime.runlog import DISCLAIMER

    rgb = read_rgb(picture)
    height, width = rgb.shape[:2]
    scope = camera_for(camera, fov, lens, width, height, camera_beside(Path(picture)))
    if scope is None:
        raise UsageError("--camera: expected the camera that took the picture, found none; give its file, or --fov.")
    ids = read_instances(mask)
    chosen = ids > 0 if polyp is None else ids == polyp
    if polyp is not None and not chosen.any():
        known = sorted(set(ids.ravel().tolist()) - {0})
        raise UsageError(f"polyp: expected one of the ids {known} in {mask}, found {polyp}.")
    if depth is not None:
        field = read_depth(depth, unit_mm=depth_unit)
    else:
        field = DepthEstimator.load().depth(rgb, scope, careful=True)
    size = caliper.measure(BinaryMask(chosen), field, scope, rgb=rgb)
    assert size.interval_mm is not None
    low, high = size.interval_mm
    say(f"long {size.long_mm:.2f} mm, short {size.short_mm:.2f} mm")
    say(f"{size.level:.0%} interval of the long axis: {low:.2f} to {high:.2f} mm")
    for flag in size.flags:
        note(f"{flag}: {caliper.FLAGS[flag]}")
    say(f"{SIMULATED} {DISCLAIMER}")
    if out is not None:
        facts = {
            "picture": str(picture),
            "long_mm": size.long_mm,
            "short_mm": size.short_mm,
            "interval_mm": [low, high],
            "level": size.level,
            "method": size.method,
            "flags": list(size.flags),
            "depth": "given" if depth is not None else "estimated",
            "remarks": [SIMULATED, DISCLAIMER],
        }
        write_text(out, json.dumps(facts, indent=2) + "\n")
    return Measured(size, out)


def forceps(
    annotations: Path,
    *,
    camera: Path | None = None,
    out: Path = Path("forceps"),
    jaw: float = 5.0,
    mark_sigma: float = 1.0,
    outline_sigma: float = 1.0,
    tilt_sigma: float = 10.0,
    offset_sigma: float = 1.0,
    distance: float = 20.0,
    level: float = 0.9,
) -> ForcepsReport:
    """Measure polyps, and depths of contact points, from biopsy forceps that annotators marked.

    Two procedures. proximal: the two tips of open jaws beside the polyp and the polyp's major axis in pixels give its
    size. extension: the tip and the marks of a graduated shaft that touches the tissue give the depth of that point
    (needs the camera). Several annotators of one polyp give a consensus, its spread and a flag for physician's review.

    Parameters
    ----------
    annotations
        JSON list or CSV. Every entry: polyp, annotator, kind (proximal or extension). proximal: x1, y1, x2, y2 (tips)
        and major_px, or ax, ay, bx, by (ends of the major axis), or mask (a file beside this one); optionally minor_px.
        extension: marks as "x y; x y; ..." from the tip backwards (in JSON a list of pairs), optionally positions_mm,
        and frame, the frame's number in its video, if the contact is to set the scale of `polypscope analyze`.
        The forceps.csv of a simulated sequence is read as well.
    camera
        Camera file; needed for extension, and takes distortion out of proximal entries with axis ends.
    out
        Folder for sizes.csv, consensus.csv, run.json and, of extension entries with a frame, contacts.csv.
    jaw
        Distance of the open tips in mm.
    mark_sigma
        Standard deviation of a mark in px.
    outline_sigma
        Standard deviation of an end of the polyp's outline in px.
    tilt_sigma
        Standard deviation of the jaws' tilt out of the image plane in degrees; it over-measures by 1 / cos.
    offset_sigma
        Standard deviation of the jaws' depth against the polyp's in mm.
    distance
        Distance in mm at which that offset is taken.
    level
        Coverage of the intervals under these assumptions.
    """
    import numpy as np
    import polars as pl

    from polypscope.evaluation.agreement import consensus as agree
    from polypscope.evaluation.agreement import icc
    from polypscope.geometry import forceps as geometry
    from polypscope.geometry import masks
    from polypscope.io.camera_file import read_camera
    from polypscope.io.masks import read_instances
    from polypscope.io.paths import require_file, safe_join
    from polypscope.io.tables import write_table
    from polypscope.pipeline.forceps_files import read_annotations
    from polypscope.records import BinaryMask
    from polypscope.records.errors import PolypscopeError, UsageError
    from polypscope.runtime.console import note, say, show_table
    from polypscope.runtime.runlog import DISCLAIMER, RunLog

    source = require_file(annotations, "file of annotations")
    lens = None if camera is None else read_camera(camera)
    entries = read_annotations(source)
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    touched: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    arguments = {"annotations": annotations, "camera": camera, "out": out, "jaw": jaw, "level": level}
    with RunLog(out, "measure forceps", arguments) as log:
        log.add_input(source)
        for number, entry in enumerate(entries, start=1):
            try:
                if entry.kind == "extension":
                    if lens is None:
                        raise UsageError("extension contact: expected a camera, found none; give --camera.")
                    contact: Contact = geometry.extension(
                        entry.marks, lens, positions_mm=entry.positions_mm, mark_sigma_px=mark_sigma, level=level
                    )
                    value, (low, high), flags = contact.depth_mm, contact.interval_mm, ""
                    if entry.frame is not None:
                        told = (*entry.marks[0], value, *contact.direction)
                        touched.setdefault((entry.polyp, entry.frame), []).append(told)
                else:
                    axis, minor = entry.axis, entry.minor_px
                    if entry.mask is not None:
                        values = read_instances(safe_join(source.parent, entry.mask))
                        # Masks are 0 and 255; maps of polyp ids, as the simulator writes them, are small numbers.
                        part = masks.largest_part(BinaryMask(values > (127 if values.max() > 127 else 0)))
                        if part.area_px == 0:
                            raise UsageError(f"{entry.mask}: expected a polyp, found an empty mask.")
                        axis, minor = masks.feret(part)
                    size = geometry.proximal(
                        entry.tips,
                        axis,
                        short_axis_px=minor,
                        camera=lens,
                        jaw_mm=jaw,
                        mark_sigma_px=mark_sigma,
                        outline_sigma_px=outline_sigma,
                        tilt_sigma_deg=tilt_sigma,
                        depth_offset_sigma_mm=offset_sigma,
                        depth_mm=distance,
                        level=level,
                    )
                    assert size.interval_mm is not None
                    value, (low, high), flags = size.long_mm, size.interval_mm, " ".join(size.flags)
            except PolypscopeError as error:
                failures.append(f"entry {number} ({entry.polyp}, {entry.annotator}): {error}")
                continue
            rows.append(
                {
                    "polyp": entry.polyp,
                    "annotator": entry.annotator,
                    "kind": entry.kind,
                    "value_mm": value,
                    "low_mm": low,
                    "high_mm": high,
                    "flags": flags,
                }
            )
        keys = list(dict.fromkeys((r["polyp"], r["kind"]) for r in rows))
        by_item = {
            f"{polyp} ({kind})": [r for r in rows if (r["polyp"], r["kind"]) == (polyp, kind)] for polyp, kind in keys
        }
        found = {item: agree([r["value_mm"] for r in group]) for item, group in by_item.items()}
        names = sorted({r["annotator"] for r in rows})
        table = np.array(
            [
                [next((r["value_mm"] for r in group if r["annotator"] == name), np.nan) for name in names]
                for group in by_item.values()
            ]
        ).reshape(-1, max(len(names), 1))
        complete = table[np.isfinite(table).all(axis=1)]
        agreement = icc(complete) if len(complete) >= 3 and len(names) >= 2 and np.ptp(complete.mean(1)) > 0 else None
        if rows:
            write_table(Path(out) / "sizes.csv", pl.DataFrame(rows))
            write_table(
                Path(out) / "consensus.csv",
                pl.DataFrame(
                    [
                        {
                            "item": item,
                            "value_mm": c.value,
                            "sd_mm": c.sd,
                            "span_mm": c.span,
                            "annotators": c.annotators,
                            "review": c.review,
                            "reason": c.reason,
                        }
                        for item, c in found.items()
                    ]
                ),
            )
        if touched:
            write_table(Path(out) / "contacts.csv", _contacts(touched))
        log.record(entries=len(entries), measured=len(rows), failures=failures)
        if agreement is not None:
            log.record(icc=agreement.icc_single, icc_interval=list(agreement.icc_single_interval))
    show_table(
        "Forceps",
        ("item", "mm", "spread (mm)", "annotators", "review"),
        [(i, f"{c.value:.2f}", f"{c.span:.2f}", c.annotators, c.reason or "no") for i, c in found.items()],
    )
    if agreement is not None:
        low, high = agreement.icc_single_interval
        say(f"ICC(2,1) {agreement.icc_single:.3f} (95 % {low:.3f} to {high:.3f}) over {agreement.items} items")
    for failure in failures[:10]:
        note(failure)
    if touched:
        say(f"Scale for `polypscope analyze --known-depths`: {Path(out) / 'contacts.csv'}")
    say(f"{len(rows)} of {len(entries)} annotations measured, in {out}. {DISCLAIMER}")
    return ForcepsReport(tuple(rows), found, agreement, tuple(failures), Path(out))


def _contacts(touched: dict[tuple[str, int], list[tuple[float, ...]]]) -> pl.DataFrame:
    """One known depth for each contact, from what its annotators say of tip, depth and direction of the shaft."""
    import numpy as np
    import polars as pl

    from polypscope.io.known_depths import COLUMNS, SHAFT

    rows = []
    for (_, frame), group in touched.items():
        x_px, y_px, depth_mm, *shaft = np.median(group, axis=0)
        rows.append([frame, x_px, y_px, depth_mm, *(np.array(shaft) / np.linalg.norm(shaft))])
    return pl.DataFrame(rows, schema=[*COLUMNS, *SHAFT], orient="row").with_columns(pl.col("frame").cast(pl.Int64))
