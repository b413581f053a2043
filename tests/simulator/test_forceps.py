"""Forceps are rulers: what their truth states is what their geometry is."""

import numpy as np
import pytest

from polypscope.geometry.cameras import project
from polypscope.simulator import sequence

SMALL = {"frames": 24, "width": 64, "height": 64, "triangles": 16_000, "polyps": "sampled"}


def frames_with_marks(kind, lens):
    for index in range(6):
        made = sequence(seed=8, index=index, forceps=kind, lens=lens, fov_deg=90.0, **SMALL)
        items = [item for item in made if item.points]
        if items:
            return made, items
    raise AssertionError("no sequence shows its forceps")


def positions(item):
    return {p["point"]: np.array([p["x_mm"], p["y_mm"], p["z_mm"]]) for p in item.points}


@pytest.mark.parametrize("lens", ["pinhole", "fisheye"])
def test_open_jaws_span_5_mm_with_the_stated_tilt_and_offset(lens):
    made, items = frames_with_marks("proximal", lens)
    truth = made.describe()["forceps_truth"]
    for item in items:
        tips = positions(item)
        line = tips["tip_a"] - tips["tip_b"]
        assert np.linalg.norm(line) == pytest.approx(5.0, abs=1e-3)
        assert np.degrees(np.arcsin(line[2] / 5.0)) == pytest.approx(truth["tilt_deg"], abs=0.01)
        apex = item.pose[:3, :3].T @ (made.polyps[0].apex - item.pose[:3, 3])
        middle = 0.5 * (tips["tip_a"] + tips["tip_b"])
        assert apex[2] - middle[2] == pytest.approx(truth["depth_offset_mm"], abs=1e-3)


@pytest.mark.parametrize("lens", ["pinhole", "fisheye"])
def test_marks_lie_every_5_mm_on_a_line_from_the_apex(lens):
    made, items = frames_with_marks("contact", lens)
    for item in items:
        marks = positions(item)
        apex = item.pose[:3, :3].T @ (made.polyps[0].apex - item.pose[:3, 3])
        assert np.allclose(marks["tip"], apex, atol=1e-4)
        way = marks["mark1"] - marks["tip"]
        for k in range(1, len(marks)):
            assert np.allclose(marks[f"mark{k}"], marks["tip"] + k * way, atol=1e-3)
        assert np.linalg.norm(way) == pytest.approx(5.0, abs=1e-3)
        for row in item.points:
            expected = project(made.camera, np.array([row["x_mm"], row["y_mm"], row["z_mm"]]))
            assert np.allclose([row["x_px"], row["y_px"]], expected, atol=0.02)


def test_forceps_cover_polyps_and_have_depth_of_their_own():
    made, items = frames_with_marks("contact", "pinhole")
    item = max(items, key=lambda i: int(i.instrument.sum()))
    assert item.instrument.sum() > 20
    assert not item.truth.instances[item.instrument].any()
    without = sequence(seed=8, index=made.index, forceps="none", fov_deg=90.0, **SMALL)
    assert without.settings.forceps == "none"
    behind = item.truth.depth.values[item.instrument]
    assert np.isfinite(behind).all()
    assert np.nanmedian(behind) < np.nanmax(item.truth.depth.values)
