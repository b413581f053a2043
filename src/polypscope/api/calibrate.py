"""Calibrate a camera from pictures of a board, and straighten pictures with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from polypscope.pipeline.calibration import Calibration
    from polypscope.records import Camera

__all__ = ["CalibrationReport", "Undistorted", "calibrate", "undistort"]


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """A calibrated camera, what it rests on, the board's layout, and the pictures in which no board was found."""

    calibration: Calibration
    layout: tuple[int, int]
    not_found: tuple[str, ...]
    out: Path

    @property
    def camera(self) -> Camera:
        """The calibrated camera."""
        return self.calibration.camera


@dataclass(frozen=True)
class Undistorted:
    """How many pictures were straightened, and the ideal camera that they now have."""

    camera: Camera
    pictures: int
    out: Path


def calibrate(
    images: Path,
    *,
    board: str = "auto",
    square: float = 3.0,
    lens: Literal["pinhole", "fisheye"] = "pinhole",
    charuco: str | None = None,
    marker: float | None = None,
    out: Path = Path("camera.json"),
) -> CalibrationReport:
    """Calibrate a camera from pictures of a chessboard or Charuco board (Zhang's method).

    Writes the camera as JSON, and beside it a picture with coverage, misses and the error of every view. Views that
    fit far worse than the others are dropped and named. Give at least three sharp pictures, better ten or more, with
    the board at different tilts and in every corner of the picture.

    Parameters
    ----------
    images
        Folder of pictures, all of one size.
    board
        Inner corners of the board as COLSxROWS (a board of 8x7 squares has 7x6), or auto to try common layouts.
    square
        Edge of one square in mm. It sets the distance of the board, not the focal length.
    lens
        pinhole (with distortion) or fisheye; capsules and colonoscopes beyond 100 degrees are fisheye.
    charuco
        Marker dictionary of a Charuco board, such as DICT_4X4_50; without it the board is a plain chessboard.
    marker
        Edge of a Charuco marker in mm; three quarters of the square unless given.
    out
        Camera file to write.
    """
    import cv2

    from polypscope.io.images import IMAGE_SUFFIXES, read_rgb
    from polypscope.io.paths import list_files, require_folder, write_bytes, write_text
    from polypscope.pipeline import boards
    from polypscope.pipeline import calibration as method
    from polypscope.records.errors import InputError, MissingInput, UsageError
    from polypscope.report.measurement import calibration_picture
    from polypscope.runtime.console import note, say, show_table, track
    from polypscope.runtime.runlog import DISCLAIMER, RunLog

    out = Path(out)
    if out.suffix.lower() != ".json":
        raise UsageError(f"out: expected a name ending in .json, found {out}; for example camera.json.")
    folder = require_folder(images, "folder of board pictures")
    paths = list_files(folder, IMAGE_SUFFIXES)
    if not paths:
        raise MissingInput(f"{folder}: expected pictures of a board, found none; give the folder that holds them.")
    arguments = {"images": images, "board": board, "square": square, "lens": lens, "charuco": charuco, "out": out}
    with RunLog(out.parent, "calibrate", arguments) as log:
        pictures = {
            p.name: cv2.cvtColor(read_rgb(p), cv2.COLOR_RGB2GRAY) for p in track(paths, "reading", unit="pictures")
        }
        layouts = list(boards.AUTO_LAYOUTS) if board == "auto" else [boards.parse_board(board)]
        if board == "auto" and charuco is not None:
            raise UsageError("board: expected COLSxROWS for a Charuco board, found auto; count its inner corners.")
        layout, seen = _best_layout(pictures, layouts, square, charuco, marker)
        missing = tuple(name for name in pictures if name not in {s.name for s in seen})
        if not seen:
            raise InputError(
                f"{folder}: expected a board of {board} inner corners in the pictures, found it in none of "
                f"{len(pictures)}; check --board (count corners, not squares), focus and light."
            )
        result = method.calibrate(seen, lens=lens)
        write_text(out, result.camera.to_json())
        write_bytes(out.with_suffix(".png"), calibration_picture(result))
        log.record(rms_px=result.rms_px, coverage=result.coverage, layout=f"{layout[0]}x{layout[1]}", views=len(seen))
        for text in result.notes:
            log.add_note(text)
    c = result.camera
    show_table(
        "Calibration",
        ("view", "error (px)", "used", "reason"),
        [(v.name, f"{v.error_px:.3f}", "yes" if v.used else "no", v.reason) for v in result.views],
    )
    say(f"board {layout[0]}x{layout[1]}, {sum(v.used for v in result.views)} views, RMS {result.rms_px:.3f} px")
    say(
        f"fx {c.fx:.2f} ± {result.sigma[0]:.2f}, fy {c.fy:.2f} ± {result.sigma[1]:.2f}, "
        f"cx {c.cx:.2f} ± {result.sigma[2]:.2f}, cy {c.cy:.2f} ± {result.sigma[3]:.2f} px ({c.lens})"
    )
    if missing:
        note(f"no board found in {len(missing)} of {len(pictures)} pictures: {', '.join(missing[:6])}")
    for text in result.notes:
        note(text)
    say(f"{out} and {out.with_suffix('.png')} written. {DISCLAIMER}")
    return CalibrationReport(result, layout, missing, out)


def undistort(images: Path, *, camera: Path, out: Path, fov: float | None = None) -> Undistorted:
    """Straighten pictures: what an ideal pinhole camera would have seen, with that camera's JSON beside them.

    Parameters
    ----------
    images
        Folder of pictures of the calibrated size.
    camera
        Camera file that `polypscope calibrate` wrote.
    out
        Folder for the straightened pictures (PNG) and camera.json.
    fov
        Horizontal field of view of the result in degrees; the lens's own up to 120 unless given.
    """
    from polypscope.io.camera_file import read_camera
    from polypscope.io.images import IMAGE_SUFFIXES, read_rgb, write_image
    from polypscope.io.paths import list_files, require_folder, write_text
    from polypscope.pipeline.calibration import undistort as straighten
    from polypscope.pipeline.calibration import undistorted_camera
    from polypscope.records.errors import MissingInput
    from polypscope.runtime.console import say, track
    from polypscope.runtime.runlog import DISCLAIMER, RunLog

    source = require_folder(images, "folder of pictures")
    lens = read_camera(camera)
    paths = list_files(source, IMAGE_SUFFIXES)
    if not paths:
        raise MissingInput(f"{source}: expected pictures, found none; give the folder that holds them.")
    target = undistorted_camera(lens, fov_deg=fov)
    out = Path(out)
    with RunLog(out, "undistort", {"images": images, "camera": camera, "out": out, "fov": fov}) as log:
        for path in track(paths, "straightening", unit="pictures"):
            write_image(out / f"{path.stem}.png", straighten(read_rgb(path), lens, target))
        write_text(out / "camera.json", target.to_json())
        log.record(pictures=len(paths))
    say(f"{len(paths)} pictures and camera.json ({target.fov_deg:.1f} degrees) in {out}. {DISCLAIMER}")
    return Undistorted(target, len(paths), out)


def _best_layout(pictures, layouts, square, charuco, marker):  # type: ignore[no-untyped-def]
    """The layout found in the most pictures, larger boards first, since small layouts also fit into large boards."""
    from polypscope.pipeline import boards

    best_layout, best = layouts[0], []
    for layout in layouts:
        board = boards.Board(*layout, square, charuco, marker)
        first = [boards.find(n, g, board) for n, g in list(pictures.items())[:3]] if len(layouts) > 1 else [None]
        if len(layouts) > 1 and not any(first):
            continue
        found = [s for s in (boards.find(name, grey, board) for name, grey in pictures.items()) if s is not None]
        if len(found) > len(best):
            best_layout, best = layout, found
        if len(layouts) > 1 and len(found) >= 0.7 * len(pictures):
            break
    return best_layout, best
