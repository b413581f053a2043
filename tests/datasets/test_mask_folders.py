"""Every way in which folders of masks and predictions can be odd is answered in words, and counted."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from polypscope.datasets.mask_folders import count_kinds, find_truth, methods_in, pair, read_attributes
from polypscope.evaluation.segmentation import POLYPSENSE3D, STILLS, SUNSEG
from polypscope.records.errors import DamagedInput, InputError, MissingInput

DISC = np.zeros((20, 24), np.uint8)
cv2.circle(DISC, (12, 10), 5, 255, -1)


def put(root: Path, *names: str, image: np.ndarray = DISC) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(root / name), image)


@pytest.fixture
def clips(tmp_path: Path) -> tuple[Path, Path]:
    """Truth and predictions of two clips with five frames, as SUN-SEG lays them out."""
    truth, predictions = tmp_path / "truth", tmp_path / "method"
    for clip in ("case1", "case2_1"):
        put(truth, *(f"TestEasyDataset/Seen/GT/{clip}/{i}.png" for i in range(1, 6)))
        put(predictions, *(f"TestEasyDataset/Seen/{clip}/{i}.png" for i in range(1, 6)))
    put(truth, "TestEasyDataset/Seen/Frame/case1/1.jpg", "TestEasyDataset/Seen/Edge/case1/1.png")
    return truth, predictions


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["TestEasyDataset/Seen/GT/case1/1.png"], [("TestEasyDataset/Seen", "case1", False)]),
        (["GT/7/1.png", "Frame/7/1.png"], [("", "7", False)]),
        (["case10/1.png", "case9/1.png"], [("", "case9", False), ("", "case10", False)]),
        (["Kvasir/masks/a.png", "Kvasir/images/a.jpg"], [("Kvasir", "Kvasir", True)]),
        (["a.png", "b.png"], [("", "root", True)]),
    ],
)
def test_layouts(tmp_path: Path, files: list[str], expected: list[tuple[str, str, bool]]) -> None:
    put(tmp_path / "root", *files)
    truth, problems = find_truth(tmp_path / "root")
    assert [(clip.subset, clip.name, clip.is_stills) for clip in truth] == expected
    assert problems == []


def test_polypsense3d_masks_hold_ids(tmp_path: Path) -> None:
    put(tmp_path / "root", *(f"seq{s}/masks/{i:06d}.png" for s in (1, 2) for i in range(3)), image=DISC // 255)
    put(tmp_path / "maps", *(f"seq{s}/rgb/{i:06d}.png" for s in (1, 2) for i in range(3)))
    for s in (1, 2):
        (tmp_path / "root" / f"seq{s}" / "sequence.json").write_text("{}")
    truth, _ = find_truth(tmp_path / "root")
    assert [(clip.subset, clip.name, clip.is_stills) for clip in truth] == [("", "seq1", False), ("", "seq2", False)]
    pairing = pair(tmp_path / "maps", truth, POLYPSENSE3D)
    assert [p.kind for p in pairing.problems] == []
    loaded, prediction, remarks = pairing.clips[0].pairs[0].load()
    np.testing.assert_array_equal(loaded, prediction)
    assert remarks == ()


@pytest.mark.parametrize("level", ["", "GT/", "Frame/"])
def test_predictions_may_keep_a_level_of_the_data_set(tmp_path: Path, level: str) -> None:
    put(tmp_path / "truth", *(f"Easy/GT/case1/{i}.png" for i in range(3)))
    put(tmp_path / "maps", *(f"Easy/{level}case1/{i}.png" for i in range(3)))
    truth, _ = find_truth(tmp_path / "truth")
    assert pair(tmp_path / "maps", truth, SUNSEG).problems == []


def test_a_tidy_pair_of_folders_has_no_problem(clips: tuple[Path, Path]) -> None:
    truth, _ = find_truth(clips[0])
    assert methods_in(clips[1], truth) == {"method": clips[1]}
    pairing = pair(clips[1], truth, SUNSEG)
    assert pairing.problems == []
    assert [(c.name, c.case, len(c.pairs), c.is_video) for c in pairing.clips] == [
        ("case1", "case1", 5, True),
        ("case2_1", "case2", 5, True),
    ]


def test_the_folder_above_several_methods_will_do(clips: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    clips[1].rename(tmp_path / "all" / "A")
    truth, _ = find_truth(clips[0])
    assert methods_in(tmp_path / "all", truth) == {"A": tmp_path / "all" / "A"}


def odd(clips: tuple[Path, Path], spec=SUNSEG) -> dict[str, int]:  # type: ignore[no-untyped-def]
    truth, problems = find_truth(clips[0])
    return count_kinds([*problems, *pair(clips[1], truth, spec).problems])


def test_stray_files(clips: tuple[Path, Path]) -> None:
    (clips[0] / "TestEasyDataset/Seen/GT/.DS_Store").write_bytes(b"x")
    (clips[1] / "TestEasyDataset/Seen/case1/Thumbs.db").write_bytes(b"x")
    assert odd(clips) == {"stray file": 2}


def test_missing_predictions_in_the_middle_but_not_at_the_dropped_ends(clips: tuple[Path, Path]) -> None:
    folder = clips[1] / "TestEasyDataset/Seen/case1"
    (folder / "1.png").unlink()
    (folder / "5.png").unlink()
    assert odd(clips) == {}
    (folder / "3.png").unlink()
    assert odd(clips) == {"missing prediction": 1}
    assert odd(clips, STILLS) == {"missing prediction": 1}
    truth, _ = find_truth(clips[0])
    pairing = pair(clips[1], truth, SUNSEG)
    assert pairing.problems[0].text.endswith("lacks 3 of 3 frames; they are scored as empty maps.")
    _, prediction, remarks = pairing.clips[0].pairs[2].load()
    assert not prediction.any()
    assert remarks == ("missing prediction",)


def test_extra_predictions_and_clips(clips: tuple[Path, Path]) -> None:
    put(clips[1], "TestEasyDataset/Seen/case1/99.png", "TestEasyDataset/Seen/case77/1.png")
    assert odd(clips) == {"extra prediction": 1, "extra clip": 1}


def test_a_missing_clip_is_scored_as_empty_and_a_missing_subset_not_at_all(clips: tuple[Path, Path]) -> None:
    for file in (clips[1] / "TestEasyDataset/Seen/case1").iterdir():
        file.unlink()
    put(clips[0], *(f"TestHardDataset/Seen/GT/case3/{i}.png" for i in range(5)))
    assert odd(clips) == {"missing subset": 1, "missing clip": 1}


def test_short_clips_are_left_out_by_name(clips: tuple[Path, Path]) -> None:
    put(clips[0], "TestEasyDataset/Seen/GT/case9/1.png", "TestEasyDataset/Seen/GT/case9/2.png")
    put(clips[1], "TestEasyDataset/Seen/case9/1.png")
    truth, _ = find_truth(clips[0])
    pairing = pair(clips[1], truth, SUNSEG)
    short = [problem.text for problem in pairing.problems if problem.kind == "short clip"]
    assert len(short) == 1
    assert short[0].startswith("clip case9: expected at least 3")
    assert [clip.name for clip in pairing.clips] == ["case1", "case2_1"]


def test_only_short_clips_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, "t/case1/1.png", "p/case1/1.png")
    truth, _ = find_truth(tmp_path / "t")
    with pytest.raises(InputError, match="too short for sunseg"):
        pair(tmp_path / "p", truth, SUNSEG)


def test_unreadable_images(clips: tuple[Path, Path]) -> None:
    whole = cv2.imencode(".png", DISC)[1].tobytes()
    (clips[1] / "TestEasyDataset/Seen/case1/2.png").write_bytes(whole[:60])
    (clips[0] / "TestEasyDataset/Seen/GT/case1/3.png").write_text("not an image")
    truth, _ = find_truth(clips[0])
    pairs = pair(clips[1], truth, SUNSEG).clips[0].pairs
    _, prediction, remarks = pairs[1].load()
    assert not prediction.any()
    assert remarks[0].startswith("unreadable prediction: ")
    assert "cut off" in remarks[0]
    with pytest.raises(DamagedInput, match=r"3\.png: expected an image, found"):
        pairs[2].load()


@pytest.mark.parametrize("kind", ["truth", "predictions"])
def test_wrong_paths_are_answered_in_words(clips: tuple[Path, Path], tmp_path: Path, kind: str) -> None:
    truth, _ = find_truth(clips[0])
    find = find_truth if kind == "truth" else lambda path: methods_in(path, truth)
    with pytest.raises(MissingInput, match="check the path"):
        find(tmp_path / "no such folder")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingInput, match=r"found an empty folder; give the folder"):
        find(tmp_path / "empty")
    (tmp_path / "other" / "stuff").mkdir(parents=True)
    with pytest.raises(MissingInput, match=r"found stuff; give"):
        find(tmp_path / "other")


def test_double_frames(clips: tuple[Path, Path]) -> None:
    put(clips[1], "TestEasyDataset/Seen/case1/2.jpg")
    assert odd(clips) == {"double frame": 1}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "clip,SI,FM\ncase1,1,0\ncase2,0,1\n"),
        ("a.csv", "clip,attributes\ncase1,SI\ncase2,FM\n"),
        ("a.json", '{"case1": ["SI"], "case2": ["FM"]}'),
    ],
)
def test_attributes(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_attributes(tmp_path / name) == {"case1": ("SI",), "case2": ("FM",)}


def test_wrong_attribute_files(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="check the path"):
        read_attributes(tmp_path / "none.csv")
    (tmp_path / "a.csv").write_text("name,SI\nx,1\n")
    with pytest.raises(DamagedInput, match="expected a column 'clip', found name, SI"):
        read_attributes(tmp_path / "a.csv")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(DamagedInput, match="expected clips and their attributes"):
        read_attributes(tmp_path / "a.json")
