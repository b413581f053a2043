"""`polypscope analyze` as a user runs it: files, folders, resume, several videos, errors in one sentence."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import av
import cv2
import polars as pl
import pytest
from colour_model import write_colour_model
from scenes import procedure

from polypscope.api.analyze import VideoSummary, _show_video, analyze
from polypscope.cli import run as command
from polypscope.geometry.scale import ScaleCourse
from polypscope.pipeline.models import load_models
from polypscope.records.errors import MissingInput, OutputError, UsageError
from polypscope.simulator import sequence

pytest.importorskip("onnx", reason="building the test model needs the train extra")

_SHAPE = (120, 160)


def _write_video(path: Path, frames: int = 110) -> Path:
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=Fraction(25), options={"preset": "ultrafast", "crf": "8"})
        stream.width, stream.height, stream.pix_fmt = _SHAPE[1], _SHAPE[0], "yuv420p"
        for frame in procedure(frames, _SHAPE):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(frame.rgb, format="rgb24")))
        out.mux(stream.encode(None))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_colour_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write_video(tmp_path_factory.mktemp("video") / "case.mp4")


@pytest.fixture(scope="module")
def done(video: Path, model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("done") / "out"
    assert command(["analyze", str(video), "-o", str(out), "--model", model]) == 0
    return out


def test_every_promised_file_is_there(done: Path) -> None:
    names = {p.name for p in done.iterdir()}
    assert names == {
        "polyps.csv",
        "polyps.json",
        "frames.parquet",
        "masks.json",
        "detections.csv",
        "overlay.mp4",
        "thumbnails",
        "run.json",
        "report.html",
    }
    log = json.loads((done / "run.json").read_text())
    assert log["status"] == "done"
    assert log["polyps"] == 2
    assert {"decode", "see", "follow", "draw", "encode"} <= set(log["stage_seconds"])
    assert "case.mp4" in log["inputs"]


def test_report_stands_alone(done: Path) -> None:
    text = (done / "report.html").read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(https?:)?//', text)
    for words in ("Timeline", "Polyp 1", "Polyp 2", "Limits of use", "not a medical device", "--camera"):
        assert words in text
    assert len(text) < 3_000_000


def test_frames_of_a_folder_give_the_same_polyps(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    folder.mkdir()
    for frame in procedure(60, _SHAPE):
        cv2.imwrite(str(folder / f"{frame.index + 1}.png"), cv2.cvtColor(frame.rgb, cv2.COLOR_RGB2BGR))
    result = analyze(folder, out=tmp_path / "out", model=model, overlay=False)
    (video,) = result.videos
    assert [row["first_frame"] for row in video.polyps] == [5]


def test_results_are_not_written_over_by_accident(done: Path, video: Path, model: str, capsys) -> None:
    with pytest.raises(OutputError, match="--overwrite"):
        analyze(video, out=done, model=model)
    again = analyze(video, out=done, model=model, resume=True)  # finished already: nothing is done, results given back
    assert [row["polyp"] for row in again.videos[0].polyps] == [1, 2]
    assert "finished already" in capsys.readouterr().err


def test_killed_process_resumes_to_the_same_results(done: Path, video: Path, model: str, tmp_path: Path) -> None:
    long = tmp_path / "long.mp4"
    _write_video(long, 260)
    words = [sys.executable, "-m", "polypscope", "analyze", str(long), "--model", model]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run([*words, "--out", str(whole)], check=True, capture_output=True, env=os.environ)
    process = subprocess.Popen([*words, "--out", str(broken)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = broken / ".partial" / "journal.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if journal.is_file() and journal.read_bytes().count(b"\n") > 130:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (broken / "report.html").exists(), "it was too fast to be killed half-way"
    subprocess.run([*words, "--out", str(broken), "--resume"], check=True, capture_output=True, env=os.environ)
    for name in ("polyps.csv", "polyps.json", "frames.parquet", "masks.json", "detections.csv", "overlay.mp4"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_failing_video_does_not_stop_the_others(model: str, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    _write_video(folder / "a.mp4", 40)
    (folder / "b.mp4").write_bytes(b"this is no video")
    _write_video(folder / "c.mp4", 40)
    out = tmp_path / "out"
    result = analyze(folder, out=out, model=model, overlay=False, jobs=2)
    assert result.exit_code == 1
    assert [v.name for v in result.videos] == ["a.mp4", "c.mp4"]
    assert result.failures[0][0] == "b"
    assert "b.mp4" in result.failures[0][1]
    summary = pl.read_csv(out / "summary.csv")
    assert summary["video"].to_list() == ["a", "b", "c"]
    assert summary["polyps"].to_list() == [1, None, 1]
    assert "failed" in capsys.readouterr().out


def test_damaged_stretch_is_reported_and_bridged(video: Path, model: str, tmp_path: Path) -> None:
    data = bytearray(video.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 3000] = bytes(3000)
    damaged = tmp_path / "damaged.mp4"
    damaged.write_bytes(data)
    (result,) = analyze(damaged, out=tmp_path / "out", model=model, overlay=False).videos
    assert result.notes
    assert result.polyps[0]["first_frame"] == 5
    assert "damaged" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"every": 0}, UsageError, "--every"),
        ({"threshold": 1.5}, UsageError, "--threshold"),
        ({"camera": Path("absent.json")}, MissingInput, "calibrate"),
        ({"camera": Path("absent.json"), "fov": 90.0}, UsageError, "one of them"),
        ({"resume": True, "overwrite": True}, UsageError, "one of them"),
    ],
)
def test_wrong_options_are_one_sentence(options, error, words: str, video: Path, model: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=words):
        analyze(video, out=tmp_path / "out", model=model, **options)


def test_missing_source_and_forbidden_folder(video: Path, model: str, tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="nowhere"):
        analyze(tmp_path / "nowhere.mp4", model=model)
    with pytest.raises(OutputError):
        analyze(video, out=Path("/proc/polypscope"), model=model)


def test_known_depths_set_the_scale_of_sizes(tmp_path: Path) -> None:
    """The shipped models on a simulated polyp: what a depth known to be larger does to its size, run log and report."""
    frames = tmp_path / "frames"
    frames.mkdir()
    shown = sequence(seed=14, frames=60, width=320, height=320, negatives=0.0, fov_deg=100.0, fov_shape="none")
    ranger, last = load_models().ranger, None
    assert ranger is not None
    for item in shown:
        cv2.imwrite(str(frames / f"{item.frame.index:03d}.png"), cv2.cvtColor(item.frame.rgb, cv2.COLOR_RGB2BGR))
        last = item.frame
    assert last is not None
    (tmp_path / "camera.json").write_text(shown.camera.to_json())
    plain = analyze(frames, out=tmp_path / "plain", camera=tmp_path / "camera.json", overlay=False).videos[0]
    assert plain.polyps, "the sequence was chosen because its polyp is found"
    depth_mm = 1.4 * float(ranger.depth(last.rgb, shown.camera).values[160, 160])
    table = tmp_path / "known.csv"
    table.write_text(f"frame,x_px,y_px,depth_mm\n{last.index},160,160,{depth_mm}\n")
    options = {"camera": tmp_path / "camera.json", "known_depths": table, "overlay": False}
    scaled = analyze(frames, out=tmp_path / "scaled", **options).videos[0]
    course = ScaleCourse((last.pts_s,), (1.4,))
    bounds = sorted(course.factor(row) for row in (0.0, last.pts_s))
    for before, after in zip(plain.polyps, scaled.polyps, strict=True):
        assert bounds[0] - 0.01 < after["long_mm"] / before["long_mm"] < bounds[1] + 0.01
    log = json.loads((tmp_path / "scaled" / "run.json").read_text())
    assert log["scale"]["known_over_predicted"] == pytest.approx([1.4], rel=1e-3)
    assert "known.csv" in log["inputs"]
    assert any("corrected by 1 known depth, 1.40 × the network's" in note for note in scaled.notes)
    assert "corrected by 1 known depth" in (tmp_path / "scaled" / "report.html").read_text(encoding="utf-8")
    assert "corrected by" not in (tmp_path / "plain" / "report.html").read_text(encoding="utf-8")


def test_a_polyp_that_no_frame_shows_whole_is_told_as_a_lower_bound(tmp_path: Path, capsys) -> None:
    seen = {"first_s": 1.0, "last_s": 2.0, "frames_seen": 20, "confidence": 0.9, "flags": "truncated"}
    rows = (
        {"polyp": 1, "long_mm": 6.24, "low_mm": 5.1, "high_mm": None, **seen},
        {"polyp": 2, "long_mm": 7.0, "low_mm": 5.9, "high_mm": 8.3, **seen},
        {"polyp": 3, "long_mm": None, "low_mm": None, "high_mm": None, **seen},
    )
    _show_video(VideoSummary("a.mp4", tmp_path, rows, 50, 2.0, 40.0, 1.6))
    shown = [line for line in capsys.readouterr().out.splitlines() if "truncated" in line]
    assert ["at least 6.2" in line and "5.1 or more" in line for line in shown] == [True, False, False]
    assert "5.9–8.3" in shown[1]
    assert shown[2].count("–") == 2


def test_known_depths_belong_to_one_measured_video(video: Path, model: str, tmp_path: Path) -> None:
    table = tmp_path / "known.csv"
    table.write_text("frame,x_px,y_px,depth_mm\n1,2,3,20\n")
    with pytest.raises(UsageError, match="--known-depths: expected one video, whose points they are, found 2"):
        analyze(video, _write_video(tmp_path / "b.mp4", 5), out=tmp_path / "out", model=model, known_depths=table)
    with pytest.raises(UsageError, match="found one without a camera; give --camera or --fov"):
        analyze(video, out=tmp_path / "out", model=model, known_depths=table)
    with pytest.raises(UsageError, match="found one without a depth head; leave out --model"):
        analyze(video, out=tmp_path / "out", model=model, fov=90.0, known_depths=table)
    assert not (tmp_path / "out").exists()
