"""`polypscope detect` from pictures, folders and videos to a CSV that `polypscope evaluate detection` reads."""

from __future__ import annotations

import json
import math
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
from polypscope.records.errors import InputError, MissingInput, UsageError

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
    detect(tmp_path / "one.png", tmp_path / "one.csv")
    rows = read_detections_csv(tmp_path / "one.csv").rows
    assert {row.frame for row in rows} == {"one"}
    expected = CvcClinic()(rgb)
    assert len(rows) == len(expected)
    assert rows[0].x == pytest.approx(expected[0].point_xy[0], abs=0.06)
    with VideoWriter(tmp_path / "clip.mp4") as writer:
        for i in range(3):
            writer.write(Frame(i, i / 25, bright_disk(160, 130, (60 + 10 * i, 60), 24)))
    result = detect(tmp_path / "clip.mp4", tmp_path / "clip.csv", most=1)
    rows = read_detections_csv(tmp_path / "clip.csv").rows
    assert result.frames == 3
    assert [row.frame for row in rows] == [0, 1, 2]
    assert all(math.hypot(row.x - 60 - 10 * row.frame, row.y - 60) < 10 for row in rows)


def test_least_and_most_cut_the_list(tmp_path: Path) -> None:
    two = [bright_disk(160, 130, (80, 65), 24, seed=seed) for seed in (0, 1)]
    write_image(tmp_path / "one.png", np.concatenate(two, axis=1))
    every = detect(tmp_path / "one.png", tmp_path / "a.csv").detections
    assert every > 1
    assert detect(tmp_path / "one.png", tmp_path / "b.csv", most=1).detections == 1
    assert detect(tmp_path / "one.png", tmp_path / "c.csv", least=1.0).detections == 0
    assert read_detections_csv(tmp_path / "c.csv").rows == ()


def test_frames_before_a_failure_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _sequence(tmp_path / "seq")
    honest, calls = CvcClinic.look, []

    def stops(self, rgb):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return honest(self, rgb)

    monkeypatch.setattr(CvcClinic, "look", stops)
    with pytest.raises(KeyboardInterrupt):
        detect(tmp_path / "seq", tmp_path / "out.csv", most=1)
    assert [row.frame for row in read_detections_csv(tmp_path / "out.csv").rows] == ["a1", "a2"]
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "interrupted"


def test_a_broken_picture_is_named_and_the_others_are_done(tmp_path: Path) -> None:
    _sequence(tmp_path / "seq")
    (tmp_path / "seq" / "images" / "a0.png").write_text("not a picture")
    result = detect(tmp_path / "seq", tmp_path / "out.csv")
    assert result.frames == 3
    assert result.exit_code == 1
    assert "a0.png" in result.failures[0]


def test_wrong_arguments_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
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
