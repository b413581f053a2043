"""Components of probability maps: what is kept, where the point lies, what the score means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polypscope.io.rle import RunLengths
from polypscope.pipeline.findings import Findings, Found, Working
from polypscope.pipeline.locate import locate
from polypscope.records import BinaryMask, Box, Detection, ProbabilityMap, SizeEstimate

_SHAPE = (120, 160)
_RGB = np.full((*_SHAPE, 3), (150, 90, 60), np.uint8)
_WHOLE = np.ones(_SHAPE, bool)


def _disc(x: float, y: float, radius: float, value: float, outside: float = 0.05) -> np.ndarray:
    rows, columns = np.mgrid[: _SHAPE[0], : _SHAPE[1]]
    return np.where((columns - x) ** 2 + (rows - y) ** 2 <= radius**2, value, outside).astype(np.float32)


@pytest.mark.parametrize(
    ("values", "scores"),
    [
        (_disc(80, 60, 15, 0.9), [0.9]),
        (_disc(80, 60, 15, 0.4), [0.4]),  # faint: kept with its low score
        (_disc(80, 60, 15, 0.2), []),
        (_disc(80, 60, 1, 0.9), []),  # too small
        (np.maximum(_disc(40, 60, 12, 0.7), _disc(120, 60, 12, 0.95)), [0.95, 0.7]),
    ],
    ids=["clear", "faint", "nothing", "speck", "two"],
)
def test_components_and_scores(values: np.ndarray, scores: list[float]) -> None:
    found = locate(ProbabilityMap(values), _RGB, _WHOLE)
    assert [f.score for f in found] == pytest.approx(scores, abs=1e-3)


def test_box_point_and_mask_agree() -> None:
    # A crescent: its centroid lies outside of it, its point must not.
    values = _disc(80, 60, 30, 0.9)
    values[_disc(90, 60, 26, 1.0) == 1.0] = 0.05
    (found,) = locate(ProbabilityMap(values), _RGB, _WHOLE)
    x, y = found.detection.point_xy
    assert found.mask.values[int(y), int(x)]
    rows, columns = np.nonzero(values >= 0.5)
    assert found.box == Box(columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1)
    assert found.mask.area_px == rows.size


def test_faint_bridge_does_not_join_two_clear_polyps() -> None:
    values = np.maximum(_disc(50, 60, 14, 0.9), _disc(100, 60, 14, 0.9))
    values[58:62, 50:100] = np.maximum(values[58:62, 50:100], 0.35)
    assert len(locate(ProbabilityMap(values), _RGB, _WHOLE)) == 2


def test_the_outline_runs_at_a_half_and_the_score_is_of_what_is_above_the_threshold() -> None:
    values = np.maximum(_disc(80, 60, 20, 0.6), _disc(80, 60, 10, 0.95))
    (found,) = locate(ProbabilityMap(values), _RGB, _WHOLE, threshold=0.8)
    assert found.mask.area_px == np.count_nonzero(values >= 0.5)
    assert found.score == pytest.approx(0.95, abs=1e-3)
    # Two sure cores in one outline are one polyp; an outline without any is not shown beside a sure one.
    values = np.maximum(values, _disc(92, 60, 6, 0.9))
    values[60, 100:140] = 0.45
    values = np.maximum(values, _disc(130, 60, 8, 0.7))
    assert len(locate(ProbabilityMap(values), _RGB, _WHOLE, threshold=0.8)) == 1


def test_picture_area_is_respected_and_its_edge_truncates() -> None:
    area = np.zeros(_SHAPE, bool)
    area[:, :100] = True
    inside, cut, outside = (locate(ProbabilityMap(_disc(x, 60, 12, 0.9)), _RGB, area) for x in (50, 100, 130))
    assert [f.truncated for f in inside] == [False]
    assert [f.truncated for f in cut] == [True]
    assert cut[0].box.x + cut[0].box.width <= 100
    assert outside == ()


def test_appearance_tells_colours_apart_whatever_the_light() -> None:
    from polypscope.pipeline.follow import _alike
    from polypscope.pipeline.locate import appearance

    mask = np.ones((20, 20), bool)
    near = np.full((20, 20, 3), (200, 120, 80), np.uint8)
    far = np.full((20, 20, 3), (100, 60, 40), np.uint8)
    pale = np.full((20, 20, 3), (200, 170, 150), np.uint8)
    seen = [np.asarray(appearance(picture, mask), float) for picture in (near, far, pale)]
    assert _alike(seen[0], seen[1]) > 0.99
    assert _alike(seen[0], seen[2]) < 0.2


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 140), st.integers(0, 100), st.integers(3, 40), st.integers(3, 30), st.sampled_from([1, 2, 2.4, 3])
)
def test_mask_at_frame_size_is_the_mask_enlarged(x: int, y: int, w: int, h: int, scale: float) -> None:
    values = np.zeros(_SHAPE, bool)
    values[y : y + h, x : x + w] = True
    rows, columns = np.nonzero(values)
    box = Box(columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1)
    working = Working((round(_SHAPE[0] * scale), round(_SHAPE[1] * scale)), _SHAPE)
    code = working.mask_to_frame(BinaryMask(values), box)
    large = code.to_mask()
    assert large.shape == working.frame_shape
    assert code == RunLengths.from_mask(large)
    sx, sy = working.scale_xy
    back = large[
        (np.arange(_SHAPE[0]) * sy + sy / 2).astype(int)[:, None], (np.arange(_SHAPE[1]) * sx + sx / 2).astype(int)
    ]
    inner = values.copy()
    inner[1:-1, 1:-1] &= values[:-2, 1:-1] & values[2:, 1:-1] & values[1:-1, :-2] & values[1:-1, 2:]
    assert not (inner[1:-1, 1:-1] & ~back[1:-1, 1:-1]).any()
    assert (back & ~values).sum() <= 2 * (w + h) + 4


def test_findings_read_back_equal() -> None:
    mask = _disc(80, 60, 10, 1.0) == 1.0
    size = SizeEstimate(6.25, 5.5, (5.0, 7.5), 0.9, "caliper", ("oblique",))
    found = Found(
        Detection((80.0, 60.0), 0.8125, Box(70, 50, 21, 21), BinaryMask(mask)),
        (1, 2, 3),
        True,
        size,
        "",
        31.5,
        {"a": 0.5},
    )
    plain = Found(Detection((80.0, 60.0), 0.5, Box(70, 50, 21, 21), BinaryMask(mask)), (0,), False, None, "no camera")
    findings = Findings(7, 0.28, ("blurred",), True, (1.5, -2.25), 0.875, (found, plain))
    again = Findings.from_line(findings.to_line(), _SHAPE)
    assert again.to_line() == findings.to_line()
    assert (again.found[0].mask.values == mask).all()
    assert again.found[0].size == size
    assert (again.index, again.pts_s, again.flags, again.cut) == (7, 0.28, ("blurred",), True)
