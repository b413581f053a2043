"""How long 32,000 frames would take, with files: measured on a few sequences, processor time and memory.

    python benchmarks/simulator_throughput.py [--sequences 8] [--frames 100]

Processor time is reported because it does not depend on what else the machine is doing; two free cores need half of it.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from pathlib import Path

import cv2

from polypscope.simulator import Settings, sequence
from polypscope.simulator.writer import begin_dataset, write_sequence

cv2.setNumThreads(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--frames", type=int, default=100)
    arguments = parser.parse_args()
    write_warm_up()
    for style in ("clean", "clinical"):
        root = Path(tempfile.mkdtemp())
        try:
            settings = Settings(frames=arguments.frames, style=style)
            begin_dataset(root, 1, settings)
            start, prepared, memory = time.process_time(), 0.0, []
            for index in range(arguments.sequences):
                before = time.process_time()
                made = sequence(1, index, settings)
                prepared += time.process_time() - before
                write_sequence(made, root)
                memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            spent = time.process_time() - start
            count = arguments.sequences * arguments.frames
            size = sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) / count / 1024
            print(
                f"{style:9s} {1000 * spent / count:6.1f} ms per frame with files "
                f"({1000 * prepared / count:.1f} ms of it preparing sequences), {size:.0f} kB per frame; "
                f"32,000 frames on two cores: {spent / count * 32000 / 2 / 60:.1f} minutes (the aim is 30); "
                f"memory {memory[0]:.0f} MB after the first, {memory[-1]:.0f} MB after the last sequence"
            )
        finally:
            shutil.rmtree(root)


def write_warm_up() -> None:
    """Compile everything before the clock runs."""
    for style in ("clean", "clinical"):
        next(iter(sequence(1, 0, frames=1, width=32, height=32, style=style)))


if __name__ == "__main__":
    main()
