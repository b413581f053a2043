"""The check names each fault; the counts on real data are those of the data's own description."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from polypscope.cli import run
from polypscope.datasets.polypsense3d import read_poses
from polypscope.datasets.registry import get_dataset
from polypscope.datasets.sun_seg import SunSeg, read_classification
from polypscope.io.images import write_image
from polypscope.records import Box
from polypscope.records.errors import DamagedInput, MissingInput, UsageError

_spec = importlib.util.spec_from_file_location("dataset_fixtures_check", Path(__file__).parent / "fixtures.py")
assert _spec is not None
assert _spec.loader is not None
fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fixtures)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


FAULTS: list[tuple[str, str, Callable[[Path], object]]] = [
    ("missing mask", "images/2.jpg", lambda root: (root / "masks/2.png").unlink()),
    ("missing image", "masks/2.png", lambda root: (root / "images/2.jpg").unlink()),
    ("size mismatch", "masks/2.png", lambda root: write_image(root / "masks/2.png", np.full((9, 9), 255, np.uint8))),
    (
        "all-black mask",
        "masks/2.png",
        lambda root: write_image(root / "masks/2.png", np.zeros(fixtures.SHAPE, np.uint8)),
    ),
    ("broken mask", "masks/10.png", lambda root: _cut(root / "masks/10.png")),
    ("broken image", "images/10.jpg", lambda root: _cut(root / "images/10.jpg")),
    ("duplicate frame", "images/10.jpg", lambda root: shutil.copy(root / "images/1.jpg", root / "images/10.jpg")),
    ("stray file", "masks/.DS_Store", lambda root: (root / "masks/.DS_Store").write_bytes(b"x")),
    ("stray file", "images/._1.jpg", lambda root: (root / "images/._1.jpg").write_bytes(b"x")),
    ("stray file", "__MACOSX", lambda root: (root / "__MACOSX").mkdir()),
]


@pytest.mark.parametrize(("kind", "path", "spoil"), FAULTS)
def test_each_fault_is_found_and_named(tmp_path: Path, kind: str, path: str, spoil: Callable[[Path], object]) -> None:
    root = fixtures.stills(tmp_path)
    spoil(root)
    problems = get_dataset("kvasir-seg").check(root).problems
    assert [(problem.kind, problem.path) for problem in problems] == [(kind, path)]
    assert problems[0].text


def test_all_faults_at_once_in_two_processes(tmp_path: Path) -> None:
    root = fixtures.stills(tmp_path)
    for i in range(20, 100):  # more than one portion of work, so that two processes really share it
        fixtures.pair(root / "images", root / "masks", str(i), i)
    (root / "masks/20.png").unlink()
    write_image(root / "masks/21.png", np.full((9, 9), 255, np.uint8))
    write_image(root / "masks/22.png", np.zeros(fixtures.SHAPE, np.uint8))
    _cut(root / "images/23.png")
    shutil.copy(root / "images/24.png", root / "images/25.png")
    (root / ".DS_Store").touch()
    found = [(problem.kind, problem.path) for problem in get_dataset("cvc-300").check(root, jobs=2).problems]
    assert found == [
        ("stray file", ".DS_Store"),
        ("missing mask", "images/20.png"),
        ("broken image", "images/23.png"),
        ("duplicate frame", "images/25.png"),
        ("size mismatch", "masks/21.png"),
        ("all-black mask", "masks/22.png"),
    ]


def test_two_masks_for_one_image(tmp_path: Path) -> None:
    root = fixtures.stills(tmp_path)
    shutil.copy(root / "masks/2.png", root / "masks/p2.png")
    with pytest.raises(DamagedInput, match=r"one mask for '2', found 2\.png and p2\.png"):
        get_dataset("kvasir-seg").check(root)


@pytest.mark.parametrize(
    ("name", "maker", "cases", "frames"),
    [("cvc-clinicdb", "clinic_original", ["seq01", "seq02", "seq29"], 4), ("polypgen", "polypgen_original", ["C6"], 1)],
)
def test_original_layouts(tmp_path: Path, name: str, maker: str, cases: list[str], frames: int) -> None:
    root = getattr(fixtures, maker)(tmp_path)
    assert [case.name for case in get_dataset(name).cases(root)] == cases
    report = get_dataset(name).check(root)
    assert (report.frames, report.problems) == (frames, ())


def test_sun_seg_splits_labels_boxes_and_negatives(tmp_path: Path) -> None:
    root = fixtures.sun_seg(tmp_path)
    cases = {case.name: case for case in SunSeg().cases(root)}
    assert list(cases) == [
        "TrainDataset/case1",
        "TrainDataset/case10",
        "TestEasyDataset/Seen/case1",
        "TestHardDataset/Unseen/case2",
        "Negative/case1",
    ]
    train = cases["TrainDataset/case1"]
    assert dict(train.metadata) == {"split": "TrainDataset", "pathology": "low_grade_adenoma"}
    assert [clip.name for clip in train.clips] == ["case1_1", "case1_3"]
    sample = train.clips[0].samples[1]
    truth = sample.truth()
    assert truth is not None
    assert truth.polyps[0].box == Box(6, 4, 8, 6)
    assert truth.pts_s == pytest.approx(1 / 30)
    negative = cases["Negative/case1"].clips[0].samples[0].truth()
    assert negative is not None
    assert not negative.has_polyp
    edge = next(iter(SunSeg("Edge").cases(root))).clips[0].samples[0].truth()
    assert edge is not None
    with pytest.raises(UsageError, match="GT, Edge, Scribble, Polygon"):
        SunSeg("Contour")


def test_sun_seg_faults(tmp_path: Path) -> None:
    root = fixtures.sun_seg(tmp_path)
    next((root / "TrainDataset/Scribble/case1_1").iterdir()).unlink()
    (root / "TestEasyDataset/Seen/Detection/bbox_annotation.json").write_text("{", encoding="utf-8")
    (root / "TestHardDataset/Unseen/Classification/classification.txt").write_text("a b\n", encoding="utf-8")
    report = SunSeg().check(root)
    assert sorted(problem.kind for problem in report.problems) == ["broken labels", "broken labels", "missing label"]
    assert any(
        "TrainDataset: 3 clips with 9 frames are here, 112 with 19,544 were published" in n for n in report.notes
    )
    with pytest.raises(DamagedInput, match="line 1: expected 'name<TAB>class'"):
        read_classification(root / "TestHardDataset/Unseen/Classification/classification.txt")


def test_polypsense3d_truth_is_in_mm(tmp_path: Path) -> None:
    root = fixtures.polypsense3d(tmp_path)
    case = next(iter(get_dataset("polypsense3d").cases(root)))
    clip = case.clips[1]
    assert case.name == "colon-7"
    assert clip.camera is not None
    truth = clip.samples[2].truth()
    assert truth is not None
    assert truth.pts_s == pytest.approx(0.1)
    assert truth.polyps[0].size_mm == 8.4
    assert truth.depth is not None
    assert truth.depth.values[0, 0] == np.float32(14.5)
    poses = read_poses(root / "seq00001")
    assert poses is not None
    assert poses.translation_mm[2].tolist() == [2, 0, 10]
    assert poses.rotation.shape == (3, 3, 3)


def test_polypsense3d_faults(tmp_path: Path) -> None:
    root = fixtures.polypsense3d(tmp_path)
    (root / "seq00000/rgb/000002.png").unlink()
    _cut(root / "seq00001/depth/000001.png")
    (root / "seq00001/camera.json").write_text("{}", encoding="utf-8")
    found = {problem.kind for problem in get_dataset("polypsense3d").check(root).problems}
    assert found == {"missing image", "missing frames", "missing poses", "broken depth", "broken file"}
    shutil.rmtree(root / "seq00000/rgb")
    with pytest.raises(MissingInput, match="rgb"):
        get_dataset("polypsense3d").check(root)


def test_asu_mayo_masks_start_at_zero_or_one(tmp_path: Path) -> None:
    root = fixtures.asu_mayo(tmp_path)
    shown = {}
    for case in get_dataset("asu-mayo").cases(root):
        truths = [sample.truth() for sample in case.clips[0]]
        shown[case.name] = [truth is not None and truth.has_polyp for truth in truths]
    assert shown["wp_2"] == shown["wp_19"] == [False, False, True, True]
    assert shown["np_5"] == [False] * 4


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = fixtures.stills(tmp_path / "data")
    assert run(["datasets", "list"]) == 0
    assert run(["datasets", "info", "polypgen"]) == 0
    assert run(["datasets", "check", "kvasir-seg", str(root)]) == 0
    shown = capsys.readouterr().out
    assert "CC BY 4.0" in shown
    assert "No fault found." in shown
    (root / "masks/2.png").unlink()
    assert run(["datasets", "check", "kvasir-seg", str(root)]) == 1
    assert "missing mask" in capsys.readouterr().out
    assert run(["datasets", "info", "polypgn"]) == 2
    assert "did you mean polypgen" in capsys.readouterr().err
    assert run(["datasets", "convert", "kvasir-seg", str(root), str(root / "inside")]) == 2
    _cut(root / "images/10.jpg")
    assert run(["datasets", "convert", "kvasir-seg", str(root), str(tmp_path / "out"), "--to", "sun-seg"]) in (0, 1)
    assert (tmp_path / "out/TestDataset/GT/kvasir-seg/1.png").is_file()


@pytest.mark.parametrize(
    ("name", "cases", "frames", "per_case"),
    [
        ("kvasir-seg", 1, 1000, None),
        ("cvc-300", 1, 60, None),
        ("cvc-clinicdb", 29, 612, None),
        ("polypgen", 6, 1537, [256, 301, 457, 227, 208, 88]),
    ],
)
def test_counts_on_real_data(shared: Path, name: str, cases: int, frames: int, per_case: list[int] | None) -> None:
    dataset = get_dataset(name)
    loaded = list(dataset.cases(shared / "data" / name))
    assert len(loaded) == cases
    counts = [sum(len(clip) for clip in case.clips) for case in loaded]
    assert sum(counts) == frames
    if per_case is not None:
        assert counts == per_case
    for case in loaded[:3]:
        sample = case.clips[0].samples[-1]
        truth = sample.truth()
        assert truth is not None
        assert truth.shape == sample.frame().shape


@pytest.mark.parametrize(("name", "duplicates"), [("cvc-300", 2), ("cvc-clinicdb", 0)])
def test_real_data_are_whole(shared: Path, name: str, duplicates: int) -> None:
    report = get_dataset(name).check(shared / "data" / name)
    assert [problem.kind for problem in report.problems] == ["duplicate frame"] * duplicates
    assert report.frames == report.masks == report.polyp_frames
