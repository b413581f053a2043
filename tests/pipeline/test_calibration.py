"""Calibration recovers simulated cameras, finds drawn boards, drops bad views by name, and works on real capsules."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from polypscope.geometry import cameras
from polypscope.pipeline import boards, calibration
from polypscope.records import Camera
from polypscope.records.errors import InputError, UsageError

BOARD = boards.Board(7, 6, 3.0)
TRUTH = {
    "pinhole": Camera(640, 480, 420.0, 425.0, 322.0, 236.0, "pinhole", (-0.21, 0.06, 0.0, 0.0)),
    "fisheye": Camera(640, 480, 300.0, 303.0, 318.0, 243.0, "fisheye", (0.02, -0.01, 0.003, -0.001)),
}


def poses(count: int, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    out = []
    while len(out) < count:
        tilt = np.radians(generator.uniform(15, 45))
        axis = generator.normal(size=3) * [1, 1, 0.2]
        rotation, _ = cv2.Rodrigues(tilt * axis / np.linalg.norm(axis))
        middle = np.array([generator.uniform(-8, 8), generator.uniform(-6, 6), generator.uniform(24, 40)])
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = rotation, middle - rotation @ BOARD.corners_mm.mean(0)
        out.append(pose)
    return out


def sightings(camera: Camera, noise_px: float, count: int = 14, seed: int = 0) -> list[boards.Sighting]:
    generator = np.random.default_rng(seed + 100)
    found = []
    for i, pose in enumerate(poses(count * 3, seed)):
        pixels = cameras.project(camera, BOARD.corners_mm @ pose[:3, :3].T + pose[:3, 3])
        if np.isfinite(pixels).all() and (pixels > 2).all() and (pixels < [camera.width - 3, camera.height - 3]).all():
            noisy = pixels + generator.normal(0, noise_px, pixels.shape)
            found.append(boards.Sighting(f"view-{i:02d}", BOARD.corners_mm, noisy, (camera.width, camera.height)))
    return found[:count]


@pytest.mark.parametrize("lens", ["pinhole", "fisheye"])
def test_a_simulated_camera_is_recovered_within_half_a_percent(lens: str) -> None:
    truth = TRUTH[lens]
    found = calibration.calibrate(sightings(truth, 0.2), lens=lens)  # type: ignore[arg-type]
    assert found.camera.fx == pytest.approx(truth.fx, rel=0.005)
    assert found.camera.fy == pytest.approx(truth.fy, rel=0.005)
    assert abs(found.camera.fx - truth.fx) < 4 * found.sigma[0]
    assert found.rms_px == pytest.approx(0.2 * np.sqrt(2), rel=0.15)
    assert not found.dropped


def test_a_bad_view_is_dropped_and_named() -> None:
    views = sightings(TRUTH["pinhole"], 0.15)
    bent = views[3].corners_px + np.random.default_rng(1).normal(0, 4.0, views[3].corners_px.shape)
    views[3] = boards.Sighting("the bent one", BOARD.corners_mm, bent, views[3].size)
    found = calibration.calibrate(views)
    assert [v.name for v in found.dropped] == ["the bent one"]
    assert "times the median" in found.dropped[0].reason
    assert found.camera.fx == pytest.approx(420.0, rel=0.005)


def drawn(camera: Camera, pose: np.ndarray, *, noise: float = 4.0) -> np.ndarray:
    """A picture of the chessboard by tracing each pixel's ray to the board's plane, four rays to the pixel."""
    fine = camera.resized(camera.width * 2, camera.height * 2)
    normal, origin = pose[:3, 2], pose[:3, 3]
    rays = cameras.rays(fine)
    t = (origin @ normal) / (rays @ normal)
    on_board = (rays * t[..., None] - origin) @ pose[:3, :3] / BOARD.square_mm
    u, v = on_board[..., 0] + 1.0, on_board[..., 1] + 1.0
    inside = (u > 0) & (v > 0) & (u < BOARD.columns + 1) & (v < BOARD.rows + 1) & (t > 0)
    dark = inside & ((np.floor(u) + np.floor(v)) % 2 == 0)
    picture = cv2.resize(
        np.where(dark, 40.0, 190.0).astype(np.float32), (camera.width, camera.height), interpolation=cv2.INTER_AREA
    )
    picture = cv2.GaussianBlur(picture, (0, 0), 0.7) + np.random.default_rng(0).normal(0, noise, picture.shape)
    return np.clip(picture, 0, 255).astype(np.uint8)


def test_drawn_boards_are_found_to_a_fifth_of_a_pixel() -> None:
    camera = TRUTH["pinhole"]
    for pose in poses(3, 5):
        found = boards.find("drawn", drawn(camera, pose), BOARD)
        assert found is not None
        expected = cameras.project(camera, BOARD.corners_mm @ pose[:3, :3].T + pose[:3, 3])
        # A chessboard may be read from either end.
        gap = min(np.linalg.norm(found.corners_px - e, axis=1).mean() for e in (expected, expected[::-1]))
        assert gap < 0.2


def test_a_charuco_board_is_found_even_in_part() -> None:
    board = boards.Board(7, 5, 3.0, "DICT_4X4_50")
    picture = board.charuco().generateImage((640, 480), marginSize=20)
    whole = boards.find("whole", picture, board)
    assert whole is not None
    assert len(whole.corners_px) == 35
    part = boards.find("part", picture[:, :400], board)
    assert part is not None
    assert 6 <= len(part.corners_px) < 35


def test_an_undistorted_picture_is_straight() -> None:
    camera = TRUTH["pinhole"]
    target = calibration.undistorted_camera(camera)
    line = np.zeros((480, 640), np.uint8)
    curve = cameras.project(camera, np.stack([np.linspace(-20, 20, 4000), np.full(4000, 9.0), np.full(4000, 30.0)], -1))
    inside = (curve > 0).all(1) & (curve < [639, 479]).all(1)
    line[curve[inside, 1].round().astype(int), curve[inside, 0].round().astype(int)] = 255
    flat = calibration.undistort(line, camera, target)
    rows, columns = np.nonzero(flat > 60)
    slope = np.polyfit(columns, rows, 2)
    assert abs(slope[0]) * 320**2 < 1.0
    rows, columns = np.nonzero(line)
    assert abs(np.polyfit(columns, rows, 2)[0]) * 320**2 > 4.0


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: boards.parse_board("seven"), UsageError, "COLSxROWS"),
        (lambda: boards.Board(2, 6, 3.0), UsageError, "3x3"),
        (lambda: boards.Board(7, 6, 0.0), UsageError, "mm"),
        (lambda: boards.Board(7, 6, 3.0, "DICT_NONE").charuco(), UsageError, "DICT_4X4_50"),
        (lambda: calibration.calibrate(sightings(TRUTH["pinhole"], 0.1)[:2]), InputError, "at least 3"),
    ],
)
def test_what_is_missing_is_said(call: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("folder", "layout", "limit_px"),
    [("mirocam", (7, 6), 1.0), ("pillcam-cam1", (8, 6), 0.5), ("pillcam-cam2", (8, 6), 0.5)],
)
def test_real_capsules_calibrate(shared: Path, folder: str, layout: tuple[int, int], limit_px: float) -> None:
    pictures = sorted((shared / "data" / "calibration" / folder).iterdir())
    seen = [boards.find(p.name, cv2.imread(str(p), cv2.IMREAD_GRAYSCALE), boards.Board(*layout, 2.0)) for p in pictures]
    found = [s for s in seen if s is not None]
    assert len(found) >= 9
    result = calibration.calibrate(found, lens="fisheye")
    assert result.rms_px < limit_px
    # The optical axis of a capsule is near the middle of its picture.
    assert abs(result.camera.cx / result.camera.width - 0.5) < 0.05
    assert abs(result.camera.cy / result.camera.height - 0.5) < 0.05
