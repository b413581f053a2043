"""The scale of a video's predicted depth from known depths in some of its frames."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.geometry.cameras import project, unproject_rays
from polypscope.geometry.scale import ScaleCourse
from polypscope.pipeline.findings import Working
from polypscope.pipeline.see import Ranger, to_working
from polypscope.pipeline.source import Source
from polypscope.records import Camera
from polypscope.records.errors import UsageError
from polypscope.records.known_depth import KnownDepth

__all__ = ["scale_course", "without_instruments"]

# Beyond this the network is not merely wrong: the depth is in another unit, or of another point or frame.
_MOST = 3.0
# Forceps are 1.8 to 2.4 mm thick; a little more is painted over, because their edges are soft.
_RADIUS_MM, _MARGIN_PX, _LONGEST_MM, _NEAREST_MM = 1.3, 3, 80.0, 1.5


def without_instruments(
    rgb: NDArray[np.uint8], points: Sequence[KnownDepth], camera: Camera, working: Working
) -> NDArray[np.uint8]:
    """The picture with the shafts that touch known points painted over by what surrounds them.

    Depth networks take the dark marks of a shaft for holes and the shaft for wall. camera: of the picture.
    """
    hidden = np.zeros(rgb.shape[:2], np.uint8)
    for point in points:
        if point.shaft is None:
            continue
        ray = unproject_rays(camera, np.array([working.from_frame(point.x_px, point.y_px)]))[0]
        if not np.isfinite(ray).all() or ray[2] <= 0:
            continue
        along = ray * point.depth_mm / ray[2] + np.arange(0.0, _LONGEST_MM, 0.25)[:, None] * np.array(point.shaft)
        along = along[along[:, 2] > _NEAREST_MM]
        for centre, away_mm in zip(project(camera, along), np.linalg.norm(along, axis=1), strict=True):
            if np.isfinite(centre).all() and np.abs(centre).max() < 4 * max(rgb.shape):
                radius_px = round(_RADIUS_MM / away_mm * camera.fx) + _MARGIN_PX
                cv2.circle(hidden, (round(centre[0]), round(centre[1])), radius_px, 1, -1)
    return rgb if not hidden.any() else np.asarray(cv2.inpaint(np.ascontiguousarray(rgb), hidden, 5, cv2.INPAINT_TELEA))


def scale_course(
    source: Source, known: Sequence[KnownDepth], working: Working, camera: Camera, ranger: Ranger
) -> ScaleCourse:
    """Compare known depths with what `ranger` says of the same points; reads the source up to the last of them.

    camera: of the source's frames. A point outside the picture, a frame that is not there, and a depth that is nowhere
    near the predicted one are errors.
    """
    by_frame: dict[int, list[KnownDepth]] = {}
    for point in known:
        by_frame.setdefault(point.frame, []).append(point)
    height, width = working.shape
    small = camera.resized(width, height)
    times_s, ratios, last = [], [], -1
    for frame in source:
        last = frame.index
        if frame.index in by_frame:
            picture = to_working(frame.rgb, working)
            points = by_frame.pop(frame.index)
            depth = ranger.depth(without_instruments(picture, points, small, working), small)
            for point in points:
                x, y = working.from_frame(point.x_px, point.y_px)
                column, row = round(x), round(y)
                inside = 0 <= column < width and 0 <= row < height
                if not inside or not depth.valid[row, column]:
                    raise UsageError(
                        f"Known depth in frame {point.frame}: expected a point inside the "
                        f"{working.frame_shape[1]}×{working.frame_shape[0]} picture, found ({point.x_px:g}, "
                        f"{point.y_px:g})."
                    )
                predicted_mm = float(depth.values[row, column])
                ratio = point.depth_mm / predicted_mm
                if not 1 / _MOST < ratio < _MOST:
                    raise UsageError(
                        f"Known depth in frame {point.frame}: expected something near the {predicted_mm:.0f} mm that "
                        f"the picture suggests, found {point.depth_mm:g} mm; give millimetres along the optical axis, "
                        "and check frame and point."
                    )
                times_s.append(frame.pts_s)
                ratios.append(ratio)
        if not by_frame:
            break
    if by_frame:
        raise UsageError(
            f"Known depths: expected frames from 0 to {last}, which could be read, found {min(by_frame)}; count "
            "frames from 0."
        )
    return ScaleCourse(tuple(times_s), tuple(ratios))
