"""Reading video: our reader beside a bare PyAV loop on the same clip, and memory over ten minutes of 1080p.

    python benchmarks/video.py [--minutes 10] [--rounds 3]

The bare loop decodes on all cores and converts each frame to RGB, with no damage accounting, stamps or records: it
is the floor. Both run in turn in one process; the ratio of their processor times is printed. The long clip is one
short clip repeated without new encoding.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np


def make_clip(path: Path, seconds: int) -> None:
    """A 1080p clip at 25 frames per second: a coloured pattern that moves, with B-frames."""
    y, x = np.mgrid[:1080, :1920]
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25, options={"preset": "ultrafast", "bf": "2", "g": "50"})
        stream.width, stream.height, stream.pix_fmt = 1920, 1080, "yuv420p"
        for i in range(25 * seconds):
            rgb = np.stack([(x + 8 * i) % 256, (y + 3 * i) % 256, (x + y) // 12 % 256], axis=-1).astype(np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        out.mux(stream.encode(None))


def repeat(path: Path, out_path: Path, times: int) -> None:
    """The same packets over and over, with stamps that go on."""
    with av.open(str(out_path), "w") as out:
        offset, stream = 0, None
        for _ in range(times):
            with av.open(str(path)) as source:
                video = source.streams.video[0]
                stream = stream or out.add_stream_from_template(video)
                end = 0
                for packet in source.demux(video):
                    if packet.size == 0:
                        continue
                    end = max(end, packet.pts + packet.duration)
                    packet.pts, packet.dts = packet.pts + offset, packet.dts + offset
                    packet.stream = stream
                    out.mux(packet)
                offset += end


def bare(path: Path) -> int:
    count = 0
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "AUTO"
        for picture in container.decode(video=0):
            picture.to_ndarray(format="rgb24")
            count += 1
    return count


def ours(path: Path) -> int:
    from polypscope.io.sources import open_source

    with open_source(path) as source:
        return sum(1 for _ in source)


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        short, long = Path(folder) / "short.mp4", Path(folder) / "long.mp4"
        make_clip(short, 3)
        cpu: dict[str, list[float]] = {"bare PyAV": [], "polypscope": []}
        frames = 0
        for _ in range(arguments.rounds):
            for name, read in (("bare PyAV", bare), ("polypscope", ours)):
                frames = _timed(read, short, cpu[name])
        floor = statistics.median(cpu["bare PyAV"])
        for name, seconds in cpu.items():
            middle = statistics.median(seconds)
            print(f"{name:12} {middle / frames * 1000:6.2f} ms of processor per 1080p frame   {middle / floor:4.2f} x")
        repeat(short, long, arguments.minutes * 20)
        if arguments.minutes:
            _watch_memory(long)


def _timed(read: Callable[[Path], int], path: Path, into: list[float]) -> int:
    start = time.process_time()
    count = read(path)
    into.append(time.process_time() - start)
    return count


def _watch_memory(path: Path) -> None:
    from polypscope.io.sources import open_source

    marks: list[tuple[float, float]] = []
    with open_source(path) as source:
        for frame in source:
            if frame.index % 250 == 0:
                marks.append((frame.pts_s, resident_mb()))
    settled = [mb for at, mb in marks if at > 20]
    print(f"{path.stat().st_size / 1e6:.0f} MB file, {marks[-1][0]:.0f} s read: resident memory after 20 s "
          f"{settled[0]:.0f} MB, at the end {settled[-1]:.0f} MB, highest {max(settled):.0f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
