"""Choose the settings of the follower on simulated procedures that are for tuning only; print tables of what each does.

    python recipes/follow.py --procedures 16 --jobs 2

First a grid over what starts an alarm (score that counts, slope, evidence, detections), then, around the best of it,
each setting of holding and recognising by itself. The best is the one with the least loss: how far the figures are from
the targets (95 % found, a median latency of 5 frames, one false track per minute, 90 % of polyps in one track), with a
little weight on being better than that, so that ties do not fall to chance. Few numbers are tuned on many
polyps, and the figures that are published come from other seeds: benchmarks/follow_simulated.py.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from polypscope.pipeline.engine import Settings
from polypscope.pipeline.follow import FollowSettings
from polypscope.pipeline.models import load_models
from polypscope.runtime.console import show_table
from polypscope.runtime.jobs import run_jobs
from polypscope.training.procedures import TUNING, Judged, Procedure, judged, procedures, seen

GRID = {
    "sure": (0.6, 0.7, 0.8, 0.85, 0.9),
    "slope": (1.0, 2.0),
    "alarm_evidence": (3.0, 4.5, 6.0, 8.0),
    "alarm_hits": (2, 3, 4),
}
AROUND = {
    "faint_loss": (0.0, 0.3, 0.7, 1.2),
    "miss_loss": (0.8, 1.5, 2.5),
    "evidence_limit": (6.0, 9.0, 14.0),
    "lost_s": (0.3, 0.6, 1.0),
    "jump_s": (0.5, 1.0, 2.0),
    "memory_s": (2.0, 3.0, 5.0, 8.0),
    "alike_near": (0.6, 0.75, 0.85),
    "alike_far": (0.85, 0.9, 0.95),
}
COLUMNS = ("found %", "latency", "false/min", "one track %", "frames shown %", "loss")


def see(cache: Path, model: str | None, procedure: Procedure) -> Path:
    """What these weights see in one procedure."""
    return seen(cache, procedure, load_models(model, threads=1))


def follow(choices: list[Settings], path: Path) -> list[Judged]:
    """One procedure with each of the settings."""
    return judged(path, choices, sizes=False)


def figures(results: list[Judged]) -> tuple[float, ...]:
    """The columns of the tables; the last is the loss."""
    polyps = [row for result in results for row in result.polyps]
    count = max(len(polyps), 1)
    found = [row for row in polyps if row["tracks"]]
    share = 100 * len(found) / count
    latency = float(np.median([min(row["latency"], 200) if row["tracks"] else 200 for row in polyps] or [200]))
    false = sum(r.false_tracks for r in results) / (sum(r.seconds for r in results) / 60)
    single = 100 * sum(row["tracks"] == 1 for row in found) / max(len(found), 1)
    shown = 100 * sum(row["hit"] for row in polyps) / max(sum(row["visible"] for row in polyps), 1)
    short = (95 - share) / 5, (latency - 5) / 5, false - 1, (90 - single) / 10
    loss = sum(max(0.0, gap) for gap in short) + 0.1 * sum(short)
    return share, latency, false, single, shown, loss


def compare(paths: list[Path], threshold: float, choices: list[FollowSettings], jobs: int) -> list[tuple[float, ...]]:
    """Figures of each choice over all procedures."""
    settings = [Settings(threshold=threshold, follow=choice) for choice in choices]
    done = run_jobs(partial(follow, settings), paths, jobs=jobs, label="following")
    return [figures([results[n] for results in done.good]) for n in range(len(choices))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--procedures", type=int, default=16, help="of clinical style in each range of seeds; half as many are clean"
    )
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--model", help="name or path of another segmenter than the shipped one")
    parser.add_argument("--cache", type=Path, default=Path("build/follow_simulated"))
    options = parser.parse_args()
    count = options.procedures
    todo = [p for first in TUNING for p in procedures(first, count, "clinical", options.frames)]
    todo += [p for first in TUNING for p in procedures(first, count // 2, "clean", options.frames)]
    names = [p.name for p in todo]
    done = run_jobs(partial(see, options.cache, options.model), todo, names=names, jobs=options.jobs, label="seeing")
    for failure in done.failures:
        print(f"{failure.name}: {failure.sentence}")
    paths, threshold = done.good, load_models(options.model).threshold
    usual = FollowSettings(threshold=threshold)
    grid = [replace(usual, **dict(zip(GRID, values, strict=True))) for values in itertools.product(*GRID.values())]
    rated = sorted(zip(compare(paths, threshold, [usual, *grid], options.jobs), [usual, *grid], strict=True),
                   key=lambda pair: pair[0][-1])  # fmt: skip
    rows = [(*(getattr(choice, key) for key in GRID), *(round(v, 2) for v in values)) for values, choice in rated]
    now = next(row for row, (_, choice) in zip(rows, rated, strict=True) if choice is usual)
    show_table("What starts an alarm: the settings as they are", (*GRID, *COLUMNS), [now])
    show_table("What starts an alarm: the twelve best", (*GRID, *COLUMNS), rows[:12])
    best = rated[0][1]
    around = [(key, value, replace(best, **{key: value})) for key, values in AROUND.items() for value in values]
    values = compare(paths, threshold, [choice for *_, choice in around], options.jobs)
    rows = [(key, value, *(round(v, 2) for v in row)) for (key, value, _), row in zip(around, values, strict=True)]
    show_table("One setting changed from the best of these", ("setting", "value", *COLUMNS), rows)


if __name__ == "__main__":
    main()
