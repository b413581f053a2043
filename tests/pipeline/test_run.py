"""A whole run on a synthetic procedure: results, exact resume after a kill at any frame, failures that keep results."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import av
import numpy as np
import polars as pl
import pytest
from scenes import ColourSeer, SceneSource, procedure

from polypscope.geometry.scale import ScaleCourse
from polypscope.io.coco import read_coco
from polypscope.io.detections_csv import read_detections_csv
from polypscope.pipeline import run as run_module
from polypscope.pipeline.engine import Settings
from polypscope.pipeline.run import discard, run
from polypscope.records.errors import OutputError, UsageError

_SHAPE = (120, 160)
_FRAMES = 110


def _source(stop_at: int | None = None) -> SceneSource:
    def frames():
        for frame in procedure(_FRAMES, _SHAPE):
            if frame.index == stop_at:
                raise KeyboardInterrupt
            yield frame

    return SceneSource(frames, _SHAPE, _FRAMES)


def _digest(folder: Path) -> dict[str, str]:
    files = [p for p in folder.rglob("*") if p.is_file() and ".partial" not in p.parts]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(autouse=True)
def _short_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "CHECKPOINT_FRAMES", 20)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, run_module.Run]:
    out = tmp_path_factory.mktemp("whole")
    patch = pytest.MonkeyPatch()
    patch.setattr(run_module, "CHECKPOINT_FRAMES", 20)
    done = run(_source(), out, ColourSeer(), Settings())
    patch.undo()
    return out, done


def test_polyps_are_those_of_the_scene(whole) -> None:
    out, done = whole
    first, second = done.results.polyps
    assert first.first_index == 5
    assert first.last_index in (44, 45)  # the seer remembers the last frame a little
    assert (second.first_index, second.last_index) == (70, _FRAMES - 1)
    assert first.alarm_index - 5 <= 5
    assert len(first.seen) == 1  # the gap of six frames is bridged
    rows = pl.read_csv(out / "polyps.csv")
    assert rows["polyp"].to_list() == [1, 2]
    assert rows["not_measured_because"].to_list() == ["no camera was given"] * 2
    data = json.loads((out / "polyps.json").read_text())
    assert [p["polyp"] for p in data["polyps"]] == [1, 2]
    assert all((out / f["picture"]).is_file() for p in data["polyps"] for f in p["best_frames"])


def test_frames_and_masks_agree_with_the_scene(whole) -> None:
    out, _ = whole
    frames = pl.read_parquet(out / "frames.parquet")
    assert frames["frame"].to_list() == list(range(_FRAMES))
    rows = {row.frame: row for row in read_detections_csv(out / "detections.csv").rows}
    assert rows[40].label == "1"
    assert np.hypot(rows[40].x - 70, rows[40].y - 60) < 4
    coco = read_coco(out / "masks.json")
    grouped = coco.by_image()
    image = next(i for i in coco.images if i.id == 40)
    (annotation,) = grouped[40]
    rows, columns = np.mgrid[: _SHAPE[0], : _SHAPE[1]]
    truth = (columns - 70) ** 2 + (rows - 60) ** 2 <= 14**2
    mask = annotation.mask(image).values
    assert (mask & truth).sum() / (mask | truth).sum() > 0.9


def test_overlay_changes_only_the_markers(whole) -> None:
    out, _ = whole
    with av.open(str(out / "overlay.mp4")) as video:
        pictures = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    with av.open(str(out / "overlay.mp4")) as video:
        times = [float(frame.pts * frame.time_base) for frame in video.decode(video=0)]
    assert len(pictures) == _FRAMES
    assert times == pytest.approx([n / 25 for n in range(_FRAMES)], abs=1e-4)
    frames = list(procedure(_FRAMES, _SHAPE))
    assert np.abs(pictures[60].astype(int) - frames[60].rgb).mean() < 6  # nothing shown: the frame, but for encoding
    changed = np.abs(pictures[40].astype(int) - frames[40].rgb).max(axis=-1) > 60
    assert changed[40:80, 45:95].any()  # the outline
    assert not changed[85:100, 110:].any()  # far from markers


@pytest.mark.parametrize("stop_at", [0, 19, 21, 75, 109])
def test_killed_and_resumed_ends_with_the_same_results(stop_at: int, whole, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(_source(stop_at), tmp_path, ColourSeer(), Settings())
    done = run(_source(), tmp_path, ColourSeer(), Settings(), resume=True)
    assert _digest(tmp_path) == _digest(whole[0])
    assert done.frames_now == _FRAMES - stop_at // 20 * 20


def test_killed_twice_and_with_a_torn_journal(whole, tmp_path: Path) -> None:
    for stop_at in (50, 90):
        with pytest.raises(KeyboardInterrupt):
            run(_source(stop_at), tmp_path, ColourSeer(), Settings(), resume=True)
        journal = tmp_path / ".partial" / "journal.jsonl"
        with journal.open("ab") as stream:
            stream.write(b'{"i": 9999, "t"')  # the line that was being written
    run(_source(), tmp_path, ColourSeer(), Settings(), resume=True)
    assert _digest(tmp_path) == _digest(whole[0])


def test_killed_while_finishing(whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "join_parts", killed)
        with pytest.raises(KeyboardInterrupt):
            run(_source(), tmp_path, ColourSeer(), Settings())
    done = run(_source(), tmp_path, ColourSeer(), Settings(), resume=True)
    assert done.frames_now == 0
    assert _digest(tmp_path) == _digest(whole[0])


def test_damaged_checkpoint_costs_time_not_correctness(whole, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(_source(50), tmp_path, ColourSeer(), Settings())
    (tmp_path / ".partial" / "checkpoint.npz").write_bytes(b"PK not really")
    assert run(_source(), tmp_path, ColourSeer(), Settings(), resume=True).frames_now == _FRAMES
    assert _digest(tmp_path) == _digest(whole[0])


def test_other_settings_are_refused_on_resume(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(_source(30), tmp_path, ColourSeer(), Settings())
    with pytest.raises(UsageError, match="settings"):
        run(_source(), tmp_path, ColourSeer(), Settings(threshold=0.6), resume=True)
    with pytest.raises(UsageError, match="scale"):
        run(_source(), tmp_path, ColourSeer(), Settings(), scale=ScaleCourse((1.0,), (1.1,)), resume=True)


def test_full_disk_is_one_sentence_and_keeps_results(whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polypscope.pipeline.store import Partial

    plain = Partial.append

    def full(self: Partial, findings) -> None:
        if findings.index == 50:
            self._journal.close()
            self._journal = open("/dev/full", "wb", buffering=0)  # noqa: PTH123, SIM115
        plain(self, findings)

    with monkeypatch.context() as patch:
        patch.setattr(Partial, "append", full)
        with pytest.raises(OutputError, match=r"no space left.*--resume"):
            run(_source(), tmp_path, ColourSeer(), Settings())
    run(_source(), tmp_path, ColourSeer(), Settings(), resume=True)
    assert _digest(tmp_path) == _digest(whole[0])


def test_empty_stretch_has_results_too(tmp_path: Path) -> None:
    done = run(SceneSource(lambda: procedure(4, _SHAPE), _SHAPE), tmp_path, ColourSeer(), Settings(), overlay=False)
    assert done.results.polyps == ()
    assert pl.read_csv(tmp_path / "polyps.csv").height == 0
    assert not (tmp_path / "overlay.mp4").exists()
    discard(tmp_path)
    assert not (tmp_path / ".partial").exists()


def test_every_other_frame(tmp_path: Path) -> None:
    done = run(_source(), tmp_path, ColourSeer(), Settings(every=2))
    assert [p.first_index for p in done.results.polyps] == [6, 70]
    assert done.results.frames == _FRAMES // 2
