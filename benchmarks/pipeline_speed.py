"""How fast a video is analysed, stage by stage; how late a live result is; whether memory stays flat.

    python benchmarks/pipeline_speed.py                     # 1920x1080, 720x576 and 640x480, analyze and live
    python benchmarks/pipeline_speed.py --minutes 30        # one long 720x576 recording: memory every minute

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
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np

from polypscope.pipeline.engine import Eye, Memory, Settings
from polypscope.pipeline.findings import Working
from polypscope.pipeline.inputs import open_any
from polypscope.pipeline.live import run_live
from polypscope.pipeline.models import load_models
from polypscope.pipeline.run import run
from polypscope.records import Camera
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


def analyse(path: Path, size: tuple[int, int], overlay: bool) -> dict[str, object]:
    models = load_models()
    camera = Camera.from_fov(*size, 110, "fisheye")
    with tempfile.TemporaryDirectory() as out, open_any(path) as source:
        used = time.process_time()
        done = run(source, Path(out), models.seer, Settings(), camera=camera, ranger=models.ranger, overlay=overlay)
    used = time.process_time() - used
    stages = {name: round(1000 * seconds / done.results.frames, 2) for name, seconds in sorted(done.seconds.items())}
    return {
        "size": f"{size[0]}x{size[1]}",
        "overlay": overlay,
        "frames_per_s": round(done.fps, 1),
        "real_time": round(done.fps / FPS, 2),
        "cpu_ms_per_frame": round(1000 * used / done.results.frames, 1),
        "polyps": len(done.results.polyps),
        "stage_ms_per_frame": stages,
    }


def live(path: Path, size: tuple[int, int]) -> dict[str, object]:
    models = load_models()
    settings = Settings()
    working = Working.of(size[::-1], settings.working_px)
    eye = Eye(working, models.seer, settings, Camera.from_fov(*size, 110, "fisheye"), models.ranger)
    eye.warm_up()
    with open_any(path) as source:
        stats = run_live(source, eye, Memory(working, settings), paced=True)
    return {"size": f"{size[0]}x{size[1]}", "live": stats.as_dict()}


def long_run(pictures: list[np.ndarray], minutes: float) -> Iterator[dict[str, object]]:
    size = (720, 576)
    models = load_models()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.mp4"
        write(path, pictures, size, round(minutes * 60 * FPS))
        seen = []
        begun = time.perf_counter()

        def on_frame(told) -> None:
            if told.findings.index % (60 * FPS) == 0:
                seen.append(round(memory_mb(), 1))

        with open_any(path) as source:
            done = run(
                source, Path(folder) / "out", models.seer, Settings(), camera=Camera.from_fov(*size, 110, "fisheye"),
                ranger=models.ranger, on_frame=on_frame,
            )  # fmt: skip
        from polypscope.report.analysis import write_analysis

        report = write_analysis(Path(folder) / "out" / "report.html", done.results, settings={})
        yield {
            "minutes": minutes,
            "memory_mb_each_minute": seen,
            "report_mb": round(report.stat().st_size / 1e6, 2),
            "seconds": round(time.perf_counter() - begun, 1),
            "polyps": len(done.results.polyps),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=300, help="length of each recording")
    parser.add_argument("--minutes", type=float, help="one long recording of so many minutes instead")
    options = parser.parse_args()
    pictures = simulated(60)
    if options.minutes:
        for row in long_run(pictures, options.minutes):
            print(json.dumps(row), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / f"{size[0]}.mp4"
            write(path, pictures, size, options.frames)
            for overlay in (False, True):
                print(json.dumps(analyse(path, size, overlay)), flush=True)
            print(json.dumps(live(path, size)), flush=True)


if __name__ == "__main__":
    main()
