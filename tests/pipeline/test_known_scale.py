"""Scale of a video from known depths in it: the right frame and pixel, instruments painted over, clear refusals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from polypscope.pipeline.findings import Working
from polypscope.pipeline.known_scale import scale_course, without_instruments
from polypscope.records import Camera, DepthKind, DepthMap, Frame, KnownDepth
from polypscope.records.errors import UsageError
from polypscope.simulator import Settings, sequence

CAMERA = Camera.from_fov(640, 480, 90.0, "pinhole")
WORKING = Working.of((480, 640), 240)


class _Film:
    """Ten frames, each of one grey value."""

    info = None
    notes = ()
    read = 0

    def __iter__(self) -> Iterator[Frame]:
        for index in range(10):
            self.read = index + 1
            # A film that changes its size is analysed in that of its first frames.
            side = 2 if index == 8 else 1
            yield Frame(index, index / 25, np.full((480 * side, 640 * side, 3), 10 + index, np.uint8))


class _Ramp:
    """Depth that grows from left to right, and with the grey value of the frame."""

    def depth(self, rgb: np.ndarray, camera: Camera) -> DepthMap:
        assert rgb.shape[:2] == (camera.height, camera.width) == WORKING.shape
        row = np.linspace(10, 40, camera.width, dtype=np.float32) * (rgb[0, 0, 0] / np.float32(10))
        values = np.tile(row, (camera.height, 1))
        values[:4] = np.nan
        return DepthMap(values, DepthKind.Z_MM)


def test_ratios_are_of_the_right_frame_and_pixel() -> None:
    film = _Film()
    course = scale_course(film, [KnownDepth(5, 639, 200, 66.0), KnownDepth(0, 0, 200, 9.0)], WORKING, CAMERA, _Ramp())
    assert course.times_s == (0.0, 0.2)
    assert course.ratios == pytest.approx((0.9, 66.0 / 60.0), rel=1e-3)
    assert film.read == 6, "no frame is read after the last that is needed"


def test_a_frame_of_another_size_is_brought_to_that_of_the_film() -> None:
    course = scale_course(_Film(), [KnownDepth(8, 639, 200, 72.0)], WORKING, CAMERA, _Ramp())
    assert course.ratios == pytest.approx((1.0,), rel=1e-3)


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (KnownDepth(10, 5, 200, 12.0), "expected frames from 0 to 9, which could be read, found 10"),
        (
            KnownDepth(3, 640.5, 200, 12.0),
            r"frame 3: expected a point inside the 640×480 picture, found \(640.5",
        ),
        (KnownDepth(3, 5, -2, 12.0), "expected a point inside"),
        (KnownDepth(3, 5, 2, 12.0), "expected a point inside"),
        (KnownDepth(0, 5, 200, 0.0105), "something near the 10 mm that the picture suggests, found 0.0105 mm"),
        (KnownDepth(0, 5, 200, 105.0), "give millimetres along the optical axis"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(point: KnownDepth, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        scale_course(_Film(), [point], WORKING, CAMERA, _Ramp())


def test_the_network_does_not_see_the_shaft() -> None:
    class Film(_Film):
        def __iter__(self) -> Iterator[Frame]:
            rgb = np.full((480, 640, 3), 60, np.uint8)
            rgb[236:245, 320:] = 255  # a shaft from the middle to the right, parallel to the picture
            yield Frame(0, 0.0, rgb)

    class Watching(_Ramp):
        def depth(self, rgb: np.ndarray, camera: Camera) -> DepthMap:
            self.brightest = int(rgb.max())
            return super().depth(np.full_like(rgb, 10), camera)

    for shaft, hidden in ((None, False), ((1.0, 0.0, 0.0), True)):
        watching = Watching()
        scale_course(Film(), [KnownDepth(0, 320, 240, 25.0, shaft)], WORKING, CAMERA, watching)
        assert (watching.brightest < 80) == hidden


@pytest.mark.parametrize("lens", ["pinhole", "fisheye"])
def test_a_shaft_is_painted_over_and_nothing_else(lens: str) -> None:
    settings = Settings(frames=40, forceps="contact", negatives=0.0, lens=lens, fov_deg=100.0, fov_shape="none",
                        triangles=40_000)  # fmt: skip
    shown = sequence(seed=24, settings=settings)
    shown = shown.only(range(0, 40, 8))
    working = Working.of((320, 320), 320)
    painted = 0
    for item in shown:
        points = {point["point"]: np.array([point[f"{axis}_mm"] for axis in "xyz"]) for point in item.points}
        pixels = {point["point"]: (point["x_px"], point["y_px"]) for point in item.points}
        if item.instrument is None or not {"tip", "mark1"} <= set(points) or item.instrument.mean() < 0.01:
            continue
        shaft = points["mark1"] - points["tip"]
        known = KnownDepth(0, *pixels["tip"], points["tip"][2], tuple(shaft / np.linalg.norm(shaft)))
        clean = without_instruments(item.frame.rgb, [known], shown.camera, working)
        changed = (clean != item.frame.rgb).any(-1)
        assert changed[item.instrument].mean() > 0.9
        assert changed[~item.instrument].mean() < 0.25
        # Tissue is red; steel and its dark marks are not.
        redness = [(p[..., 0].astype(int) - p[..., 2])[item.instrument].mean() for p in (item.frame.rgb, clean)]
        assert redness[1] > redness[0] + 20
        painted += 1
    assert painted
    rgb = np.zeros((320, 320, 3), np.uint8)
    assert without_instruments(rgb, [KnownDepth(0, 5, 5, 20.0)], shown.camera, working) is rgb
