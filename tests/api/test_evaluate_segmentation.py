"""The benchmark from folders to report, with the published reference layouts and small made-up ones."""

import json
import re
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest

from polypscope.api.evaluate_segmentation import evaluate_segmentation
from polypscope.cli import run
from polypscope.records.errors import InputError, UsageError

LEVELS = ["TestEasyDataset/Unseen", "TestHardDataset/Unseen"]


def disc(x: float, y: float, grey: int = 255, shape: tuple[int, int] = (40, 48)) -> np.ndarray:
    image = np.zeros(shape, np.uint8)
    cv2.circle(image, (round(x), round(y)), 8, grey, -1)
    return image


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two subsets with two clips of four frames, and two methods: `near` is better than `far`."""
    rng = np.random.default_rng(0)
    for s, subset in enumerate(LEVELS):
        for c in range(2):
            for i in range(4):
                x, y = 20 + i, 18 + rng.integers(-2, 3)
                name = f"case{2 * s + c + 1}_1/{i + 1}.png"
                images = {f"truth/{subset}/GT/{name}": disc(x, y)}
                for method, offset in (("near", 2), ("far", 9)):
                    soft = cv2.resize(cv2.blur(disc(x + offset, y, 240), (5, 5)), (30, 28))
                    images[f"methods/{method}/{subset}/{name}"] = soft
                for path, image in images.items():
                    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
                    cv2.imwrite(str(tmp_path / path), image)
    (tmp_path / "truth" / "attributes.csv").write_text("clip,FM,SO\ncase1_1,1,0\ncase4_1,1,1\n")
    return tmp_path / "truth", tmp_path / "methods"


@pytest.mark.parametrize("layout", ["layout_sun", "layout_numeric"])
def test_the_printed_table_equals_the_toolbox(shared: Path, layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shared / "vectors" / "sunseg" / layout
    expected = json.loads((folder.parent / "expected.json").read_text())[layout]
    result = evaluate_segmentation(folder / "gt", [folder / "pred"], measures="toolbox", replicates=0)
    (scores,) = next(iter(result.scores.values())).values()
    for measure, want in expected["dataset"].items():
        assert scores[measure] == pytest.approx(want, abs=1e-12)
    printed = re.findall(r"\d\.\d{3}", capsys.readouterr().out)
    assert printed == list(expected["engine_table_rounded"].values())


def test_everything_is_written_and_agrees(folders: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = evaluate_segmentation(folders[0], [folders[1]], out=out, replicates=100, jobs=2)
    assert result.exit_code == 0
    assert set(result.files) >= {
        "frames.parquet",
        "clips.csv",
        "summary.json",
        "report.html",
        "tables.md",
        "tables.tex",
    }
    assert not [p for p in out.rglob("*") if p.suffix == ".part" or p.name == ".frames"]
    frames = pl.read_parquet(out / "frames.parquet")
    assert len(frames) == 2 * 4 * 2  # two methods, four clips, two frames left of four
    clips = pl.read_csv(out / "clips.csv")
    assert len(clips) == 8
    one = frames.filter((pl.col("method") == "near") & (pl.col("clip") == "case1_1"))
    row = clips.filter((pl.col("method") == "near") & (pl.col("clip") == "case1_1"))
    assert one["Smeasure"].mean() == pytest.approx(row["Smeasure"][0])
    summary = json.loads((out / "summary.json").read_text())
    easy = summary["methods"]["near"]["subsets"][LEVELS[0]]
    assert easy["scores"]["Smeasure"] == result.scores["near"][LEVELS[0]]["Smeasure"]
    low, high = easy["intervals"]["Smeasure"]
    assert low <= easy["scores"]["Smeasure"] <= high
    assert json.loads((out / "run.json").read_text())["status"] == "done"
    assert (out / "curves_easy-unseen.svg").is_file()
    assert (out / "curves_hard-unseen.png").is_file()


def test_the_report_ranks_ours_among_the_published(folders: tuple[Path, Path], tmp_path: Path) -> None:
    evaluate_segmentation(folders[0], [folders[1]], out=tmp_path / "out", replicates=50)
    page = (tmp_path / "out" / "report.html").read_text()
    for text in ("Research software, not a medical device.", "published, Table 4", "published, Table 5", "0.902",
                 "measured here", "2 clips were scored here, 86 in the paper", "Differences between methods",
                 "Boundary F (ours)", r"\begin{tabular}"):  # fmt: skip
        assert text in page, text
    tables = (tmp_path / "out" / "tables.md").read_text()
    board = tables.split("SUN-SEG-Easy (Unseen), ranked by S.**\n\n")[1].split("\n\n")[0]
    rows = [line for line in board.splitlines() if line.startswith("| ") and "Rank" not in line and ":--" not in line]
    scores = [float(row.split("|")[3].strip(" *")) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert len(rows) == 14 + 2


def test_jobs_do_not_change_a_digit(folders: tuple[Path, Path]) -> None:
    one, two = (evaluate_segmentation(folders[0], [folders[1]], replicates=0, jobs=jobs) for jobs in (1, 2))
    assert one.scores == two.scores


def test_stills_are_divided_among_jobs_without_changing_the_scores(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (folders[0], [folders[1] / "near"])
    whole = evaluate_segmentation(*arguments, protocol="stills", replicates=0)
    monkeypatch.setattr("polypscope.api.evaluate_segmentation._STILLS_PER_JOB", 3)
    parts = evaluate_segmentation(*arguments, protocol="stills", replicates=0)
    for subset, scores in whole.scores["near"].items():
        assert parts.scores["near"][subset] == pytest.approx(scores, nan_ok=True)


def test_polypsense3d_writes_deviations(folders: tuple[Path, Path], tmp_path: Path) -> None:
    result = evaluate_segmentation(
        folders[0], [folders[1]], protocol="polypsense3d", out=tmp_path / "o", name=["b", "a"], replicates=50
    )
    assert list(result.scores) == ["b", "a"]
    assert "±" in (tmp_path / "o" / "tables.md").read_text()
    scores = result.scores["a"][LEVELS[0]]
    assert scores["F1"] == scores["mDice"]
    assert 0 < scores["pooledDice"] <= 1


def test_oddities_are_told_and_strict_makes_them_failures(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    near = folders[1] / "near"
    for file in (near / LEVELS[0] / "case1_1").iterdir():
        cv2.imwrite(str(file), np.zeros((28, 30), np.uint8))
    (near / LEVELS[1] / "case3_1" / "2.png").write_bytes(b"broken")
    (folders[0] / LEVELS[1] / "GT" / "case4_1" / "3.png").write_bytes(b"broken")
    result = evaluate_segmentation(folders[0], [near], replicates=0)
    text = "\n".join(result.problems["near"])
    assert "case1_1: all 2 predictions are empty maps" in text
    assert "case3_1: 1 predictions cannot be read and are scored as empty maps" in text
    assert "case4_1: frame left out" in text
    assert "were resized to it" in text
    assert "Note: near: " in capsys.readouterr().err
    with pytest.raises(InputError, match="--strict: "):
        evaluate_segmentation(folders[0], [near], strict=True)


def test_masks_of_0_and_1_are_pointed_out(folders: tuple[Path, Path]) -> None:
    for file in (folders[0] / LEVELS[0] / "GT" / "case1_1").iterdir():
        cv2.imwrite(str(file), cv2.imread(str(file), 0) // 255)
    result = evaluate_segmentation(folders[0], [folders[1] / "near"], replicates=0)
    assert any("are the masks stored as 0 and 1?" in text for text in result.problems["near"])


def test_a_clip_that_cannot_be_scored_does_not_stop_the_others(folders: tuple[Path, Path]) -> None:
    for file in (folders[0] / LEVELS[0] / "GT" / "case1_1").iterdir():
        file.write_bytes(b"broken")
    result = evaluate_segmentation(folders[0], [folders[1] / "near"], replicates=0)
    assert result.exit_code == 1
    assert "case1_1" in result.failures[0]
    assert len(result.scores["near"]) == 2


def test_the_command_line(folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "segmentation", str(folders[0]), str(folders[1] / "near"), str(folders[1] / "far")]
    assert run([*words, "--out", str(tmp_path / "o"), "--replicates", "20"]) == 0
    assert "near" in capsys.readouterr().out
    assert run([*words[:2], str(tmp_path / "nothing"), words[3]]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_names_must_fit(folders: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="expected 2 names"):
        evaluate_segmentation(folders[0], [folders[1]], name=["one"])
