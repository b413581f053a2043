"""How fast a video is analysed, stage by stage; how late a live result is; whether memory stays flat.

    python benchmarks/pipeline_speed.py                     # 1920x1080, 720x576 and 640x480, analyze and live
    python benchmarks/pipeline_speed.py --only live --size 720x576 --frames 1500
    python benchmarks/pipeline_speed.py --minutes 30        # one long 720x576 recording: memory every minute
    python benchmarks/pipeline_speed.py --minutes 30 --every 2    # the same in half the time

The recording is simulated, enlarged to each size and looped; the weights are those that ship. Stages overlap (reading,
analysing, drawing and encoding have threads of their own), so their sum is more than the time that passes.
`cpu_ms_per_frame` counts the work of all threads and hardly depends on what else the machine does: two free cores
can't do better than 2000 divided by it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import shutil
import tempfile
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np

from polypscope.pipeline.engine import Eye, Memory, Settings, Told
from polypscope.pipeline.findings import Working
from polypscope.pipeline.follow import FollowSettings
from polypscope.pipeline.inputs import open_any
from polypscope.pipeline.live import run_live
from polypscope.pipeline.models import Models, load_models
from polypscope.pipeline.run import run
from polypscope.records import Camera
from polypscope.report.analysis import write_analysis
from polypscope.runtime.console import show_table
from polypscope.simulator import sequence

SIZES = ((1920, 1080), (720, 576), (640, 480))
FPS = 25


def simulated(frames: int) -> list[np.ndarray]:
    """A short simulated passage with a polyp, forwards and backwards, so that it can be looped without a jump."""
    clip = sequence(seed=26, index=5, frames=frames, style="clinical", polyps="sampled", width=320, height=320)
    pictures = [item.frame.rgb for item in clip]
    return pictures + pictures[::-1]


def write(path: Path, pictures: list[np.ndarray], size: tuple[int, int], frames: int) -> None:
    """Encode a recording of this size (width, height)."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=Fraction(FPS), options={"preset": "veryfast", "crf": "20"})
        (stream.width, stream.height), stream.pix_fmt = size, "yuv420p"
        for picture in itertools.islice(itertools.cycle(pictures), frames):
            large = cv2.resize(picture, size, interpolation=cv2.INTER_CUBIC)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(large, format="rgb24")))
        out.mux(stream.encode(None))


def memory_mb() -> float:
    """Resident memory of this process now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def settings_of(models: Models) -> Settings:
    """The settings that `analyze` and `live` use with these weights."""
    return Settings(threshold=models.threshold, follow=FollowSettings(threshold=models.threshold))


def analyse(path: Path, size: tuple[int, int], overlay: bool) -> dict[str, object]:
    """Analyse a whole recording, with or without the video with markers."""
    models = load_models()
    camera = Camera.from_fov(*size, 110, "fisheye")
    with tempfile.TemporaryDirectory() as out, open_any(path) as source:
        used = time.process_time()
        done = run(
            source, Path(out), models.seer, settings_of(models), camera=camera, ranger=models.ranger, overlay=overlay
        )
    used = time.process_time() - used
    stages = {name: round(1000 * seconds / done.results.frames, 2) for name, seconds in sorted(done.seconds.items())}
    return {
        "what": "analyze",
        "size": f"{size[0]}x{size[1]}",
        "overlay": overlay,
        "frames_per_s": round(done.fps, 1),
        "real_time": round(done.fps / FPS, 2),
        "cpu_ms_per_frame": round(1000 * used / done.results.frames, 1),
        "polyps": len(done.results.polyps),
        "stage_ms_per_frame": stages,
    }


def live(path: Path, size: tuple[int, int]) -> dict[str, object]:
    """Play a recording at its own speed; nobody looks at the preview, nothing is recorded."""
    models = load_models()
    settings = settings_of(models)
    working = Working.of(size[::-1], settings.working_px)
    eye = Eye(working, models.seer, settings, Camera.from_fov(*size, 110, "fisheye"), models.ranger)
    eye.warm_up()
    memory = Memory(working, settings)
    with open_any(path) as source:
        stats = run_live(source, eye, memory, paced=True)
    sized = sum(memory.sizes.final(track.id) is not None for track in memory.tracks())
    return {"what": "live", "size": f"{size[0]}x{size[1]}", **stats.as_dict(), "polyps_measured": sized}


def long_run(pictures: list[np.ndarray], minutes: float, every: int, keep: Path | None) -> dict[str, object]:
    """One long recording with overlay and report; the report is copied to `keep`."""
    size = (720, 576)
    models = load_models()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.mp4"
        write(path, pictures, size, round(minutes * 60 * FPS))
        seen: list[float] = []
        begun = time.perf_counter()

        def on_frame(told: Told) -> None:
            if told.findings.index % (60 * FPS) == 0:
                seen.append(round(memory_mb(), 1))
                print(f"minute {len(seen) - 1}: {seen[-1]} MB, {time.perf_counter() - begun:.0f} s", flush=True)

        with open_any(path) as source:
            done = run(
                source, Path(folder) / "out", models.seer, replace(settings_of(models), every=every),
                camera=Camera.from_fov(*size, 110, "fisheye"), ranger=models.ranger, on_frame=on_frame,
            )  # fmt: skip
        report = write_analysis(Path(folder) / "out" / "report.html", done.results, settings={})
        if keep is not None:
            shutil.copy(report, keep)
        return {
            "what": "long",
            "minutes": minutes,
            "every": every,
            "memory_mb_each_minute": seen,
            "memory_mb_at_the_end": round(memory_mb(), 1),
            "report_mb": round(report.stat().st_size / 1e6, 2),
            "seconds": round(time.perf_counter() - begun, 1),
            "real_time": round(every * done.fps / FPS, 2),
            "polyps": len(done.results.polyps),
        }


def show(rows: list[dict[str, object]]) -> None:
    """What the targets are about, side by side."""
    table = []
    for row in rows:
        name = f"{row['what']} {row['size']}" + (" with overlay" if row.get("overlay") else "")
        if row["what"] == "live":
            late = f"{row['p50_ms']} / {row['p95_ms']} / {row['p99_ms']}"
            table.append((name, row["frames_per_s"], None, None, late, row["dropped_percent"]))
        else:
            table.append((name, row["frames_per_s"], row["real_time"], row["cpu_ms_per_frame"], None, None))
    columns = ("run", "frames/s", "x real time", "CPU ms/frame", "latency ms p50 / p95 / p99", "dropped %")
    show_table("Speed of the pipeline", columns, table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=300, help="length of each recording")
    parser.add_argument("--size", action="append", help="such as 720x576; may be given several times")
    parser.add_argument("--only", choices=("analyze", "live"))
    parser.add_argument("--minutes", type=float, help="one long recording of so many minutes instead")
    parser.add_argument("--every", type=int, default=1, help="with --minutes: analyse each so-many-th frame")
    parser.add_argument("--keep", type=Path, help="with --minutes: copy the report to this file")
    options = parser.parse_args()
    pictures = simulated(60)
    if options.minutes:
        print(json.dumps(long_run(pictures, options.minutes, options.every, options.keep)), flush=True)
        return
    sizes = SIZES
    if options.size:
        sizes = tuple((int(w), int(h)) for w, h in (text.split("x") for text in options.size))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"{size[0]}.mp4"
            write(path, pictures, size, options.frames)
            for overlay in (False, True) if options.only != "live" else ():
                rows.append(analyse(path, size, overlay))
                print(json.dumps(rows[-1]), flush=True)
            if options.only != "analyze":
                rows.append(live(path, size))
                print(json.dumps(rows[-1]), flush=True)
    show(rows)


if __name__ == "__main__":
    main()
