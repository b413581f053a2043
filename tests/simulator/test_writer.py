"""The layout on disk: whole, resumable, and the same bytes whatever the number of jobs."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from polypscope.api.simulate import simulate
from polypscope.records import Camera
from polypscope.records.errors import UsageError
from polypscope.simulator import Settings, sequence

ARGUMENTS = {"frames": 3, "sequences": 2, "seed": 2, "size": "48x40", "negatives": 0.0}


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file() and p.name != "run.json"
    }


def test_files_hold_the_truth(tmp_path):
    simulate(tmp_path / "a", **ARGUMENTS)
    folder = tmp_path / "a" / "seq00001"
    facts = json.loads((folder / "sequence.json").read_text())
    made = sequence(2, 1, Settings(frames=3, width=48, height=40, negatives=0.0))
    assert Camera.from_json((folder / "camera.json").read_text()) == made.camera
    assert facts["polyps"]
    assert facts["frames"] == 3
    poses = np.loadtxt(folder / "poses.csv", delimiter=",", skiprows=1)
    for item in made:
        stem = f"{item.frame.index:06d}.png"
        depth = cv2.imread(str(folder / "depth" / stem), cv2.IMREAD_UNCHANGED)
        assert depth.dtype == np.uint16
        known = np.isfinite(item.truth.depth.values)
        assert np.abs(depth * 0.01 - item.truth.depth.values)[known].max() <= 0.00501
        assert not depth[~known].any()
        mask = cv2.imread(str(folder / "masks" / stem), cv2.IMREAD_UNCHANGED)
        assert np.array_equal(mask, item.truth.instances)
        assert np.array_equal(cv2.imread(str(folder / "rgb" / stem))[..., ::-1], item.frame.rgb)
        assert np.allclose(poses[item.frame.index, 2:].reshape(3, 4), item.pose[:3], atol=1e-5)


def test_same_bytes_for_any_number_of_jobs_and_after_an_interruption(tmp_path):
    simulate(tmp_path / "a", **ARGUMENTS)
    simulate(tmp_path / "b", **ARGUMENTS, jobs=2)
    whole = contents(tmp_path / "a")
    assert whole == contents(tmp_path / "b")
    # As if the run had been killed while it wrote its second sequence.
    (tmp_path / "b" / "seq00001" / "sequence.json").unlink()
    kept = (tmp_path / "b" / "seq00000" / "sequence.json").stat().st_mtime_ns
    simulate(tmp_path / "b", **ARGUMENTS)
    assert contents(tmp_path / "b") == whole
    assert (tmp_path / "b" / "seq00000" / "sequence.json").stat().st_mtime_ns == kept


def test_another_recipe_or_foreign_files_are_not_touched(tmp_path):
    simulate(tmp_path / "a", **{**ARGUMENTS, "sequences": 1})
    before = contents(tmp_path / "a")
    with pytest.raises(UsageError, match="differs in seed"):
        simulate(tmp_path / "a", **{**ARGUMENTS, "seed": 3})
    assert contents(tmp_path / "a") == before
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="never overwrites"):
        simulate(tmp_path / "b", **ARGUMENTS)


@pytest.mark.parametrize(
    "change",
    [{"size": "big"}, {"fov": "wide"}, {"fov": "190"}, {"sequences": 0}, {"seed": -1}, {"frames": -2}],
    ids=str,
)
def test_bad_arguments_are_one_sentence_and_leave_nothing(tmp_path, change):
    with pytest.raises(UsageError, match=r"expected .* found"):
        simulate(tmp_path / "x", **{**ARGUMENTS, **change})
    assert not (tmp_path / "x").exists()


def test_a_full_disk_is_one_sentence_and_keeps_what_was_written(tmp_path):
    resource = pytest.importorskip("resource", reason="limits on file size need a POSIX system")
    from polypscope.records.errors import OutputError
    from polypscope.simulator.writer import begin_dataset, finish_dataset, write_sequence

    settings = Settings(frames=1, width=48, height=40, triangles=4000)
    begin_dataset(tmp_path, 2, settings)
    write_sequence(sequence(2, 0, settings), tmp_path)
    before = contents(tmp_path)
    made = sequence(2, 1, settings)
    next(iter(made))  # everything is compiled before the limit holds
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # The system refuses to let any file grow beyond 600 bytes: the same kind of error as a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, hard))
        with pytest.raises(OutputError, match="run the same command again"):
            write_sequence(made, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(tmp_path) == before
    assert finish_dataset(tmp_path) == ["seq00000"]
