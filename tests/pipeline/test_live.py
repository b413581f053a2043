"""Live: the newest frame is analysed, late ones are dropped and counted, an unplugged camera ends clearly."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from scenes import ColourSeer, SceneSource, procedure

from polypscope.pipeline.engine import Eye, Memory, Settings
from polypscope.pipeline.findings import Working
from polypscope.pipeline.live import LiveStats, newest_frames, run_live
from polypscope.records import Frame
from polypscope.records.errors import InputError
from polypscope.report.preview import Preview

_SHAPE = (120, 160)


def _eye_and_memory() -> tuple[Eye, Memory]:
    settings = Settings()
    working = Working.of(_SHAPE, settings.working_px)
    return Eye(working, ColourSeer(), settings), Memory(working, settings)


class _SlowSeer(ColourSeer):
    def step(self, rgb):
        time.sleep(0.05)
        return super().step(rgb)


def test_slow_analysis_drops_old_frames_and_keeps_up() -> None:
    settings = Settings()
    working = Working.of(_SHAPE, settings.working_px)
    eye, memory = Eye(working, _SlowSeer(), settings), Memory(working, settings)
    seen: list[int] = []
    stats = run_live(
        SceneSource(lambda: procedure(60, _SHAPE, fps=60.0), _SHAPE),
        eye,
        memory,
        paced=True,
        deadline_ms=30,
        on_result=lambda frame, told, stats: seen.append(frame.index),
    )
    assert stats.captured == 60
    assert stats.analysed + stats.dropped == 60
    assert stats.dropped > 20
    assert seen == sorted(set(seen))
    assert seen[-1] == 59  # the last frame is newest of all: never dropped
    assert stats.misses == stats.analysed  # each took longer than 30 ms
    assert stats.percentile(50) < 400  # no queue builds up
    assert stats.ended_by == "the source ended"


def test_a_file_is_played_at_its_own_speed() -> None:
    begun = time.perf_counter()
    stop = threading.Event()
    source = SceneSource(lambda: procedure(13, _SHAPE, fps=25.0), _SHAPE)
    frames = list(newest_frames(source, LiveStats(), paced=True, stop=stop))
    assert time.perf_counter() - begun >= 12 / 25
    assert frames[-1][0].index == 12


def test_unplugged_camera_is_a_clear_end_with_results() -> None:
    def unplugged():
        for frame in procedure(40, _SHAPE):
            if frame.index == 30:
                raise InputError("camera 0: expected frames, found: no such device; check its cable.")
            time.sleep(0.005)
            yield frame

    eye, memory = _eye_and_memory()
    stats = run_live(SceneSource(unplugged, _SHAPE), eye, memory, paced=False)
    assert "check its cable" in stats.ended_by
    assert [t.id for t in memory.tracks()] == [1]


def test_ends_after_the_given_time() -> None:
    eye, memory = _eye_and_memory()
    stats = run_live(SceneSource(lambda: procedure(500, _SHAPE), _SHAPE), eye, memory, paced=True, seconds=0.3)
    assert stats.ended_by == "time is up"
    assert stats.seconds < 5


def test_statistics() -> None:
    stats = LiveStats(deadline_ms=50)
    for latency in range(1, 101):
        stats.add(float(latency))
    stats.captured, stats.dropped = 200, 10
    assert stats.percentile(50) == pytest.approx(np.percentile(np.arange(1, 101), 50))
    assert stats.misses == 50
    assert stats.as_dict()["dropped_percent"] == 5.0


def test_preview_shows_picture_and_numbers_on_this_machine_only() -> None:
    eye, memory = _eye_and_memory()
    with Preview(memory.working, "Live: scene", 0) as preview:
        assert preview.url.startswith("http://127.0.0.1:")
        frames = list(procedure(15, _SHAPE))
        for frame in frames:
            preview.show(frame, memory.take(eye.look(frame)), lambda: {"p95_ms": 12.0})
        page = urllib.request.urlopen(preview.url, timeout=5).read().decode()
        assert "not a medical device" in page
        numbers = json.loads(urllib.request.urlopen(preview.url + "numbers", timeout=5).read())
        assert numbers["polyps"] == [{"id": 1, "size": "", "shown": True}]
        assert numbers["stats"] == {"p95_ms": 12.0}
        stream = urllib.request.urlopen(preview.url + "stream", timeout=5)
        head = stream.read(200)
        assert b"image/jpeg" in head
        assert b"\xff\xd8" in head
        stream.close()
        request = urllib.request.Request(preview.url, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=5)
        preview.show(Frame(99, 4.0, frames[-1].rgb), memory.take(eye.look(frames[-1])))
