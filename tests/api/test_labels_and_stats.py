"""`labels derive` and `datasets stats` from folder to files."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from polypscope.api.dataset_stats import dataset_statistics
from polypscope.api.labels import derive_labels
from polypscope.cli import run
from polypscope.datasets.mask_folders import read_attributes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two clips of four frames with pictures; the first polyp moves fast, the second leaves the picture."""
    rng = np.random.default_rng(0)
    for clip, step, x0 in (("case1", 25, 40), ("case2", 4, 105)):
        for i in range(4):
            mask = np.zeros((100, 140), np.uint8)
            cv2.circle(mask, (x0 + step * i, 50), 22, 255, -1)
            rgb = rng.integers(60, 120, (100, 140, 3)).astype(np.uint8)
            rgb[mask > 0] += 60
            for folder, name, image in (("GT", f"{i}.png", mask), ("Frame", f"{i}.jpg", rgb)):
                path = tmp_path / "data" / "TestEasyDataset" / "Seen" / folder / clip / name
                path.parent.mkdir(parents=True, exist_ok=True)
                cv2.imwrite(str(path), image)
    return tmp_path / "data"


def pictures(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.png"))}


def test_labels_are_written_beside_the_masks_and_reproducible(root: Path, tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text("clip,SI,FM\ncase1,1,0\ncase2,0,1\n")
    result = derive_labels(root, attributes=tmp_path / "seen.csv")
    assert (result.clips, result.frames, result.exit_code) == (2, 8, 0)
    # FM is computed, not taken over: case1 moves 25 px per frame, case2 does not
    assert result.attributes["TestEasyDataset/Seen/case1"] == ("SI", "FM")
    assert result.attributes["TestEasyDataset/Seen/case2"] == ("OV",)
    assert read_attributes(root / "attributes.csv")["TestEasyDataset/Seen/case1"] == ("SI", "FM")
    seen = root / "TestEasyDataset" / "Seen"
    for folder in ("Edge", "Scribble", "Polygon"):
        assert sorted(p.name for p in (seen / folder / "case2").iterdir()) == [f"{i}.png" for i in range(4)]
    boxes = json.loads((seen / "Detection" / "bbox_annotation.json").read_text())["annotation"]
    assert len(boxes) == 8
    assert boxes[0]["id"] == "case1/0"
    assert boxes[0]["bbox"] == [18, 28, 45, 45]
    assert json.loads((seen / "Polygon" / "polygons.json").read_text())["case1/0"]["parts"]
    derive_labels(root, out=tmp_path / "again", jobs=2)
    for name, data in pictures(tmp_path / "again").items():
        assert (root / name).read_bytes() == data
    derive_labels(root, out=tmp_path / "other", seed=1, kinds=("scribble",))
    other = pictures(tmp_path / "other")
    assert set(other) == {name for name in pictures(tmp_path / "again") if "Scribble" in name}
    assert other != {name: pictures(tmp_path / "again")[name] for name in other}


def test_statistics(root: Path, tmp_path: Path) -> None:
    result = dataset_statistics([root], out=tmp_path / "out")
    (subset,) = result.subsets.values()
    assert (subset["clips"], subset["frames"], subset["positives"]) == (2, 8, 8)
    assert subset["attributes"] == {"FM": 1, "OV": 1}
    for name in ("centre_bias", "share", "global_contrast", "local_contrast", "attributes"):
        assert (tmp_path / "out" / f"{name}.svg").stat().st_size > 1000
    bias = np.array(json.loads((tmp_path / "out" / "statistics.json").read_text())[0]["centre_bias"])
    masks = [cv2.imread(str(p), 0) > 128 for p in (root / "TestEasyDataset/Seen/GT").rglob("*.png")]
    assert bias.mean() == pytest.approx(np.mean(masks), abs=1e-5)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Research software, not a medical device." in page


def test_broken_masks_are_named_and_the_rest_goes_on(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "TestEasyDataset" / "Seen" / "GT" / "case1" / "1.png").write_bytes(b"broken")
    assert run(["datasets", "stats", str(root)]) == 1
    assert "1.png" in capsys.readouterr().err
    assert derive_labels(root, kinds=("box",)).frames == 7


def test_wrong_paths_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["labels", "derive"], ["datasets", "stats"]):
        assert run([*words, str(tmp_path / "nothing")]) == 1
        assert capsys.readouterr().err.count("\n") == 1
