"""CT surfaces: brought to scale by a stated length, and refused in one sentence when they do not serve."""

import json

import numpy as np
import pytest

from polypscope.api.simulate import simulate
from polypscope.records.errors import DamagedInput, InputError, MissingInput, UsageError
from polypscope.simulator import sequence
from polypscope.simulator.ctcolon import CtColon, loop_subdivide
from polypscope.simulator.surface import open_edges


def tube(tmp_path, radius=20.0, length=300.0, unit=1.0, hole=False, shift=0.0, around=40, rings=80):
    """A bent tube as OBJ and its centreline as JSON, both in units of `unit` mm."""
    s = np.linspace(0, length, rings)
    centre = np.stack([60 * np.sin(s / 120), np.zeros_like(s), s], -1)
    t = np.linspace(0, 2 * np.pi, around, endpoint=False)
    ring = np.stack([np.cos(t), np.sin(t), np.zeros_like(t)], -1)
    vertices = (centre[:, None] + radius * (1 + 0.1 * np.sin(s / 9))[:, None, None] * ring[None]).reshape(-1, 3) / unit
    ids = np.arange(rings * around).reshape(rings, around)
    right = np.roll(ids, -1, 1)
    faces = np.concatenate(
        [
            np.stack([ids[:-1], ids[1:], right[1:]], -1).reshape(-1, 3),
            np.stack([ids[:-1], right[1:], right[:-1]], -1).reshape(-1, 3),
        ]
    )
    if hole:
        middle = vertices[faces].mean(1)
        faces = faces[np.linalg.norm(middle - vertices[ids[rings // 2, 5]], axis=1) > 6 / unit]
    mesh, line = tmp_path / "tube.obj", tmp_path / "line.json"
    rows = ["v {} {} {}".format(*v) for v in vertices] + ["f {} {} {}".format(*(f + 1)) for f in faces]
    mesh.write_text("\n".join(rows))
    fine = np.stack([np.interp(np.arange(0, length), s, centre[:, k]) for k in range(3)], -1)
    line.write_text(json.dumps({"points": ((fine + np.array([0, shift, 0])) / unit).tolist()}))
    return mesh, line


@pytest.mark.parametrize("unit", [1.0, 0.6, 1000.0])
def test_a_stated_length_sets_the_scale(tmp_path, unit):
    mesh, line = tube(tmp_path, unit=unit)
    true_mm = CtColon(*tube(tmp_path, unit=1.0)).length_mm
    colon = CtColon(*tube(tmp_path, unit=unit), centerline_mm=true_mm)
    assert colon.mm_per_unit == pytest.approx(unit, rel=0.01)
    stretch = colon.stretch(60, 240, 20_000)
    assert len(open_edges(stretch.surface.faces)) == 0
    assert np.median(stretch.radius_mm) == pytest.approx(20.0, rel=0.1)
    assert mesh.is_file()
    assert line.is_file()


def test_a_sequence_runs_through_a_mesh(tmp_path):
    mesh, line = tube(tmp_path)
    made = sequence(3, frames=3, width=48, height=48, mesh=str(mesh), centerline=str(line), negatives=0.0)
    assert made.subject == "tube"
    for item in made:
        assert np.isfinite(item.truth.depth.values[made.fov]).all()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"hole": True}, DamagedInput, "no holes"),
        ({"unit": 1000.0}, InputError, "millimetres"),
        ({"radius": 1.0}, InputError, "wall"),
        ({"shift": 300.0}, InputError, "same units and place"),
        ({"shift": 30.0}, InputError, "inside"),
    ],
    ids=str,
)
def test_what_does_not_serve_is_refused_before_anything_is_written(tmp_path, change, error, says):
    mesh, line = tube(tmp_path, **change)
    with pytest.raises(error, match=says):
        sequence(1, frames=2, width=32, height=32, mesh=str(mesh), centerline=str(line))


def test_files_that_are_no_mesh(tmp_path):
    mesh, line = tube(tmp_path)
    broken = tmp_path / "x.vtk"
    broken.write_text("hello")
    for arguments, error in (
        ({"mesh": broken, "centerline": line}, DamagedInput),
        ({"mesh": tmp_path / "none.vtk", "centerline": line}, MissingInput),
        ({"mesh": line, "centerline": line}, UsageError),
        ({"mesh": mesh, "centerline": broken}, DamagedInput),
        ({"mesh": mesh}, UsageError),
    ):
        with pytest.raises(error, match="expected"):
            simulate(tmp_path / "out", frames=1, **arguments)
    assert not (tmp_path / "out").exists()


def test_loop_subdivision_rounds_an_octahedron_and_keeps_it_closed():
    vertices = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], float)
    faces = np.array([[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]], np.int32)
    for _ in range(3):
        vertices, faces = loop_subdivide(vertices, faces)
    radius = np.linalg.norm(vertices, axis=1)
    assert len(faces) == 8 * 64
    assert len(open_edges(faces)) == 0
    assert radius.std() / radius.mean() < 0.06


def test_a_real_ct_colon(shared):
    root = shared / "data" / "colon-ct" / "EdinGCA_3D_00020"
    mesh, line = root / "SegmentedSurfaces" / "large-intestine-DSJ-SF-.vtk", root / "Paths" / "large_intestine_path.jsn"
    with pytest.raises(InputError, match="--centerline-mm"):
        CtColon(mesh, line)
    made = sequence(
        2, frames=2, width=64, height=64, mesh=str(mesh), centerline=str(line), centerline_mm=1895.0, negatives=0.0
    )
    assert made.segment == "descending"
    assert 8 < np.median(made.stretch.radius_mm) < 30
    for item in made:
        assert np.isfinite(item.truth.depth.values[made.fov]).all()
