"""`polypscope detect` from pictures, folders and videos to a CSV that `polypscope evaluate detection` reads."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scenes_of_mucosa import bright_disk

from polypscope.api.detect import detect
from polypscope.api.evaluate_detection import detection
from polypscope.cli import run
from polypscope.io.detections_csv import read_detections_csv
from polypscope.io.images import read_grey, write_image
from polypscope.io.video_writer import VideoWriter
from polypscope.methods.cvc_clinic import CvcClinic
from polypscope.records import Frame
from polypscope.records.errors import InputError, MissingInput, OutputError, UsageError

PLACES = {"a1": (60, 60), "a2": (100, 70), "a3": (90, 80)}


def _mask(place: tuple[int, int]) -> np.ndarray:
    y, x = np.mgrid[:130, :160]
    return (np.hypot(x - place[0], y - place[1]) < 24).astype(np.uint8) * np.uint8(255)


def _sequence(folder: Path) -> None:
    for seed, (name, place) in enumerate(PLACES.items()):
        write_image(folder / "images" / f"{name}.png", bright_disk(160, 130, place, 24, seed=seed))
        write_image(folder / "masks" / f"{name}.png", _mask(place))


def test_from_folders_of_frames_to_scores(tmp_path: Path) -> None:
    for name in ("seq1", "seq2"):
        _sequence(tmp_path / "data" / name)
    result = detect(tmp_path / "data", tmp_path / "run" / "dova.csv", maps=tmp_path / "maps", most=1)
    assert (result.frames, result.detections, result.exit_code) == (6, 6, 0)
    assert (tmp_path / "run" / "dova.csv").read_text().splitlines()[0] == "video,frame,x,y,score"
    report = detection(
        tmp_path / "data", str(tmp_path / "run" / "dova.csv"), f"maps={tmp_path / 'maps'}",
        out=tmp_path / "study", replicates=20,
    )  # fmt: skip
    counts = report.result.methods[0].group("all").counts
    assert (counts.tp, counts.fp, counts.fn) == (6, 0, 0)
    ratio = report.result.methods[1].concentration
    assert ratio is not None
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "done"
    assert record["frames"] == 6
    assert record["arguments"]["method"] == "cvc-clinic"


def test_maps_have_the_size_and_the_name_of_the_frames(tmp_path: Path) -> None:
    _sequence(tmp_path / "seq")
    detect(tmp_path / "seq", tmp_path / "out.csv", maps=tmp_path / "maps")
    for name, place in PLACES.items():
        energy = read_grey(tmp_path / "maps" / f"{name}.png")
        assert energy.shape == (130, 160)
        inside = energy[_mask(place) > 0].mean()
        assert inside > 3 * energy[_mask(place) == 0].mean()


def test_one_picture_and_one_video(tmp_path: Path) -> None:
    rgb = bright_disk(160, 130, (60, 60), 24)
    write_image(tmp_path / "one.png", rgb)
    detect(tmp_path / "one.png", tmp_path / "one.CSV")
    rows = read_detections_csv(tmp_path / "one.CSV").rows
    assert {row.frame for row in rows} == {"one"}
    expected = CvcClinic()(rgb)
    assert len(rows) == len(expected)
    assert rows[0].x == pytest.approx(expected[0].point_xy[0], abs=0.06)
    with VideoWriter(tmp_path / "clip.mp4") as writer:
        for i in range(3):
            writer.write(Frame(i, i / 25, bright_disk(160, 130, (60 + 10 * i, 60), 24)))
    result = detect(tmp_path / "clip.mp4", tmp_path / "clip.csv", most=1, maps=tmp_path / "maps")
    rows = read_detections_csv(tmp_path / "clip.csv").rows
    assert result.frames == 3
    assert [row.frame for row in rows] == [0, 1, 2]
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == ["000000.png", "000001.png", "000002.png"]
    assert all(math.hypot(row.x - 60 - 10 * row.frame, row.y - 60) < 10 for row in rows)


def test_least_and_most_cut_the_list(tmp_path: Path) -> None:
    two = [bright_disk(160, 130, (80, 65), 24, seed=seed) for seed in (0, 1)]
    write_image(tmp_path / "one.png", np.concatenate(two, axis=1))
    assert detect(tmp_path / "one.png", tmp_path / "a.csv").detections > 2
    scores = [row.score for row in read_detections_csv(tmp_path / "a.csv").rows]
    assert scores == pytest.approx([d.score for d in CvcClinic()(np.concatenate(two, axis=1))], abs=1e-4)
    detect(tmp_path / "one.png", tmp_path / "b.csv", least=0.2)
    assert [row.score for row in read_detections_csv(tmp_path / "b.csv").rows] == [s for s in scores if s and s >= 0.2]
    assert detect(tmp_path / "one.png", tmp_path / "b.csv", most=1).detections == 1
    assert detect(tmp_path / "one.png", tmp_path / "c.csv", least=1.0).detections == 0
    assert read_detections_csv(tmp_path / "c.csv").rows == ()


def test_frames_before_a_failure_are_kept(tmp_path: Path) -> None:
    """The map of the last frame cannot be written, because a folder has its name."""
    _sequence(tmp_path / "seq")
    (tmp_path / "maps" / "a3.png").mkdir(parents=True)
    with pytest.raises(OutputError, match=r"a3\.png: expected the name of a file to write, found a folder"):
        detect(tmp_path / "seq", tmp_path / "out.csv", most=1, maps=tmp_path / "maps")
    assert [row.frame for row in read_detections_csv(tmp_path / "out.csv").rows] == ["a1", "a2", "a3"]
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "failed"


def test_frames_before_a_kill_are_on_disk(tmp_path: Path) -> None:
    """A killed process closes nothing: only what was written out frame by frame is there."""
    folder, out, count = tmp_path / "seq", tmp_path / "out.csv", 300
    write_image(folder / "f0.png", bright_disk(160, 130, (60, 60), 24))
    for number in range(1, count):
        (folder / f"f{number}.png").hardlink_to(folder / "f0.png")
    words = [sys.executable, "-m", "polypscope", "detect", str(folder), str(out), "--most", "1"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if out.is_file() and out.read_bytes().count(b"\n") > 3:
            break
        time.sleep(0.01)
    process.kill()
    process.wait()
    rows = read_detections_csv(out).rows
    assert 3 <= len(rows) < count, "it ended before it could be killed half-way"
    assert [row.frame for row in rows] == [f"f{number}" for number in range(len(rows))]


def test_what_is_good_of_a_damaged_video_is_kept_and_the_rest_noted(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "whole.mkv") as writer:
        for i in range(12):
            writer.write(Frame(i, i / 25, bright_disk(160, 130, (60 + 3 * i, 60), 24, seed=i)))
    content = (tmp_path / "whole.mkv").read_bytes()
    (tmp_path / "cut.mkv").write_bytes(content[: len(content) // 2])
    detect(tmp_path / "whole.mkv", tmp_path / "whole.csv", most=1)
    detect(tmp_path / "cut.mkv", tmp_path / "cut.csv", most=1)
    whole, cut = (read_detections_csv(tmp_path / f"{name}.csv").rows for name in ("whole", "cut"))
    assert 2 <= len(cut) < len(whole) == 12
    assert cut == whole[: len(cut)]
    spoilt = bytearray(content)
    for index in range(7 * len(content) // 10, 7 * len(content) // 10 + 60):
        spoilt[index] ^= 255
    (tmp_path / "spoilt.mkv").write_bytes(spoilt)
    detect(tmp_path / "spoilt.mkv", tmp_path / "spoilt.csv", most=1)
    assert json.loads((tmp_path / "run.json").read_text())["notes"][0].startswith("spoilt.mkv: ")


@pytest.mark.parametrize("place", ["a0", "a2x", "a9"])
def test_a_broken_and_a_tiny_picture_are_named_and_the_others_are_done(place: str, tmp_path: Path) -> None:
    _sequence(tmp_path / "seq")
    (tmp_path / "seq" / "images" / f"{place}.png").write_text("not a picture")
    write_image(tmp_path / "seq" / "images" / f"{place}tiny.png", np.zeros((4, 30, 3), np.uint8))
    result = detect(tmp_path / "seq", tmp_path / "out.csv", most=1)
    assert (result.frames, result.exit_code) == (3, 1)
    assert [row.frame for row in read_detections_csv(tmp_path / "out.csv").rows] == list(PLACES)
    assert f"{place}.png" in result.failures[0]
    assert f"{place}tiny.png: frame: expected uint8 RGB" in result.failures[1]
    assert json.loads((tmp_path / "run.json").read_text())["failures"] == list(result.failures)


@pytest.mark.parametrize(("named", "maps"), [("seq", "seq"), ("seq/a.png", "seq"), (".", ".")])
def test_maps_never_take_the_place_of_pictures(
    named: str, maps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("seq", "other"):
        write_image(tmp_path / name / "a.png", bright_disk(160, 130, (60, 60), 24))
    before = (tmp_path / "seq" / "a.png").read_bytes()
    with pytest.raises(UsageError, match="--maps: expected a folder of its own"):
        detect(Path(named), Path("out.csv"), maps=Path(maps))
    assert (tmp_path / "seq" / "a.png").read_bytes() == before
    assert not (tmp_path / "out.csv").exists()


def test_wrong_arguments_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "picture.webp").write_text("pictures of this kind cannot be read")
    with pytest.raises(InputError, match="expected videos or images"):
        detect(tmp_path / "empty", tmp_path / "o.csv")
    with pytest.raises(MissingInput, match="found nothing there"):
        detect(tmp_path / "absent", tmp_path / "o.csv")
    with pytest.raises(UsageError, match=r"ending in \.csv"):
        detect(tmp_path / "empty", tmp_path / "o.txt")
    with pytest.raises(UsageError, match="--most"):
        detect(tmp_path / "empty", tmp_path / "o.csv", most=0)
    with pytest.raises(UsageError, match="--least"):
        detect(tmp_path / "empty", tmp_path / "o.csv", least=2)
    assert run(["detect", str(tmp_path / "empty"), str(tmp_path / "o.csv"), "--method", "cumed"]) == 2
    shown = capsys.readouterr().err
    assert "expected a known method, found 'cumed'" in shown
    assert "cvc-clinic" in shown
    assert not (tmp_path / "run.json").exists()
