"""One source from first to last frame: reads ahead, sees, follows, draws, keeps what was found, can go on later.

The order of writing makes a kill at any moment harmless: the picture of a best frame before the journal line that
needs it, the overlay part and the journal before the checkpoint that counts them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.geometry.scale import ScaleCourse
from polypscope.pipeline.engine import Eye, Glimpse, Memory, Settings, Stopwatch, Told
from polypscope.pipeline.findings import Working
from polypscope.pipeline.overlay_video import OverlayWriter, join_parts
from polypscope.pipeline.results import Results, write_results
from polypscope.pipeline.see import Ranger, Seer, to_working
from polypscope.pipeline.source import Source, ahead
from polypscope.pipeline.store import Partial
from polypscope.records import Camera, Frame

__all__ = ["CHECKPOINT_FRAMES", "Run", "discard", "picture_jpeg", "run"]

CHECKPOINT_FRAMES = 125
_PICTURE_SIDE = 640


@dataclass
class Run:
    """What a run left: its results, and how long each stage took."""

    results: Results
    seconds: dict[str, float]
    wall_s: float
    frames_now: int  # analysed by this very run, not by the one it resumed
    notes: list[str] = field(default_factory=list)

    @property
    def fps(self) -> float:
        """Frames analysed per second of this run."""
        return self.frames_now / self.wall_s if self.wall_s > 0 else 0.0


def run(
    source: Source,
    out: Path,
    seer: Seer,
    settings: Settings,
    *,
    identity: str = "",
    model: str = "",
    camera: Camera | None = None,
    ranger: Ranger | None = None,
    scale: ScaleCourse | None = None,
    overlay: bool = True,
    resume: bool = False,
    on_frame: Callable[[Told], None] | None = None,
) -> Run:
    """Analyse a source and write all results but the report into `out`; call `discard(out)` when that is written too.

    identity, model: the same text for the same content of the source and for the same weights; a run can only be
    resumed with both unchanged. scale: corrects predicted depth by what is known of it. on_frame: called after each
    frame.
    """
    started = time.perf_counter()
    info = source.info
    shape = (info.height, info.width)
    fps = info.fps or 25.0
    working = Working.of(shape, settings.working_px)
    watch = Stopwatch()
    seer.reset()
    eye = Eye(working, seer, settings, camera, ranger, scale)
    memory = Memory(working, settings)
    same = {
        "source": identity or info.name,
        "shape": list(shape),
        "model": model,
        "camera": None if camera is None else camera.to_json(),
        "settings": settings.as_dict(),
        "scale": None if scale is None else [list(scale.times_s), list(scale.ratios)],
        "overlay": overlay,
        "format": 1,
    }
    with Partial(out, same, resume=resume) as partial:
        next_index, parts = 0, 0
        if partial.checkpoint is not None:
            eye.restore(partial.checkpoint.memory)
            next_index, parts = partial.checkpoint.next_index, partial.checkpoint.parts
            for findings in partial.replay(working.shape):
                told = memory.take(findings)
                if on_frame is not None:
                    on_frame(told)
        writer = OverlayWriter(partial.overlay, working, fps / settings.every, parts) if overlay else None
        before = partial.count
        try:
            next_index = _analyse(source, next_index, partial, eye, memory, writer, watch, on_frame)
            if writer is not None:
                with watch("wait for overlay"):
                    writer.close_part()
            _checkpoint(partial, next_index, writer, eye.state(), memory)
        finally:
            if writer is not None:
                writer.stop()
        with watch("finish"):
            results = write_results(partial, out, info.name, fps, working, settings, memory)
            video = out / "overlay.mp4"
            if writer is not None and partial.count:
                join_parts(sorted(partial.overlay.glob("[0-9]*.mp4")), video)
            else:
                video.unlink(missing_ok=True)
        seconds = {**eye.watch.seconds, **watch.seconds, **({} if writer is None else writer.watch.seconds)}
        frames_now = partial.count - before
    return Run(results, seconds, time.perf_counter() - started, frames_now, list(source.notes))


def _analyse(
    source: Source,
    start: int,
    partial: Partial,
    eye: Eye,
    memory: Memory,
    writer: OverlayWriter | None,
    watch: Stopwatch,
    on_frame: Callable[[Told], None] | None,
) -> int:
    next_index = start
    # Three threads in a row: one decodes, one runs the networks, this one does the rest.
    for glimpse, state in ahead(_glimpses(source, start, partial.count, eye), 1, patient=False):
        frame = glimpse.frame
        findings = eye.judge(glimpse, watch)
        with watch("follow"):
            told = memory.take(findings)
        with watch("write"):
            if told.new_best:
                partial.keep_frame(frame.index, picture_jpeg(frame.rgb))
            partial.append(findings)
        if writer is not None:
            with watch("wait for overlay"):
                writer.add(frame.rgb, told)
        if on_frame is not None:
            on_frame(told)
        next_index = frame.index + 1
        if state is not None:
            if writer is not None:
                with watch("wait for overlay"):
                    writer.close_part()
            with watch("write"):
                _checkpoint(partial, next_index, writer, state, memory)
    return next_index


def _glimpses(
    source: Source, start: int, before: int, eye: Eye
) -> Iterator[tuple[Glimpse, dict[str, NDArray[Any]] | None]]:
    """Each frame as the networks see it and, where a checkpoint is due after it, the state of the eye right then."""
    for count, (frame, small) in enumerate(ahead(_wanted(source, start, eye, eye.watch)), before + 1):
        glimpse = eye.glance(frame, small)
        due = count % CHECKPOINT_FRAMES == 0
        yield glimpse, {name: value.copy() for name, value in eye.state().items()} if due else None


def _wanted(source: Source, start: int, eye: Eye, watch: Stopwatch) -> Iterator[tuple[Frame, NDArray[np.uint8]]]:
    """Frames to be analysed, all of one size, and each at working size.

    The file is read from its start, because a seek is not exact.
    """
    decode = Stopwatch()  # the thread that reads has its own watch: two threads must not share one
    frames = iter(source)
    while True:
        with decode("decode"):
            frame = next(frames, None)
        watch.seconds["decode"] = decode.seconds["decode"]
        if frame is None:
            return
        if frame.index < start or frame.index % eye.settings.every:
            continue
        if frame.shape != eye.working.frame_shape:
            height, width = eye.working.frame_shape
            rgb = np.asarray(cv2.resize(frame.rgb, (width, height), interpolation=cv2.INTER_AREA))
            frame = Frame(frame.index, frame.pts_s, rgb)
        with decode("decode"):
            small = to_working(frame.rgb, eye.working)
        yield frame, small


def _checkpoint(
    partial: Partial, next_index: int, writer: OverlayWriter | None, state: dict[str, NDArray[Any]], memory: Memory
) -> None:
    partial.save(next_index, 0 if writer is None else writer.parts, state, memory.best.indices())


def picture_jpeg(rgb: NDArray[np.uint8]) -> bytes:
    """A frame as the report shows it: JPEG, at most 640 pixels wide or high."""
    scale = min(1.0, _PICTURE_SIDE / max(rgb.shape[:2]))
    if scale < 1:
        size = (round(rgb.shape[1] * scale), round(rgb.shape[0] * scale))
        rgb = np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA))
    good, data = cv2.imencode(".jpg", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 88])
    assert good
    return bytes(data)


def discard(out: Path) -> None:
    """Remove the working files of a run: everything in them has its final name, or is not wanted."""
    shutil.rmtree(out / ".partial", ignore_errors=True)
