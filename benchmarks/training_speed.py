"""What keeping freed memory (`runtime.allocation`) is worth: steps of training with and without it, in turn.

    python benchmarks/training_speed.py [--steps 6] [--rounds 3] [--encoder lite1] [--size 384]

Each measurement is a process of its own, since the setting lasts as long as a process. Pictures are noise: a step takes
as long whatever they show.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

WAYS = ("as the C library does", "kept")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6, help="steps of each measurement, after two that do not count")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each way, in turn")
    parser.add_argument("--encoder", default="lite1")
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--way", choices=WAYS, help="measure this way alone, in this process")
    options = parser.parse_args()
    if options.way is not None:
        measure(options)
        return
    told: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way, found in told.items():
            command = [sys.executable, __file__, "--way", way, "--steps", str(options.steps)]
            command += ["--encoder", options.encoder, "--size", str(options.size)]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found.append([float(word) for word in out.split()])
    print("freed memory            s a step   of it in the system   peak MB   x")
    base = float(np.median([row[0] for row in told[WAYS[0]]]))
    for way, found in told.items():
        seconds, system, peak = np.median(np.array(found), axis=0)
        print(f"{way:22} {seconds:9.2f} {system:20.0%} {peak:10.0f} {seconds / base:5.2f}")


def measure(options: argparse.Namespace) -> None:
    """Print the seconds of a step, the share of processor time that the system took, and the peak of memory in MB."""
    import torch

    from polypscope.models.pns_plus_stream import StreamSegmenter
    from polypscope.runtime.allocation import keep_pages
    from polypscope.training.config import TrainConfig
    from polypscope.training.loop import make_optimiser, training_step

    if options.way == "kept":
        keep_pages()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    config = TrainConfig.model_validate({"out": ".", "train": [{"root": "."}]})
    model = StreamSegmenter(options.encoder).to(memory_format=torch.channels_last).train()
    optimiser = make_optimiser(model, config)
    rgb = torch.randint(0, 256, (config.optimiser.batch, 3, options.size, options.size), dtype=torch.uint8)
    mask = (rgb[:, :1] > 200).to(torch.uint8) * 255
    for step in range(2 + options.steps):
        if step == 2:
            started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        loss = training_step(model, (rgb, mask), config)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    system, user = after.ru_stime - before.ru_stime, after.ru_utime - before.ru_utime
    print(seconds / options.steps, system / (system + user), after.ru_maxrss / 1024)


if __name__ == "__main__":
    main()
