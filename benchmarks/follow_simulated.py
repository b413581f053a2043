"""Procedures that no model was trained on: polyps found, how soon, false tracks, pieces per polyp, sizes in interval.

    python benchmarks/follow_simulated.py --sequences 24 --jobs 2

Each sequence is a passage of 8 s through a colon of its own seed, `clinical` style, new polyps, fields of view from 80
to 130 degrees; one in four has no polyp. A polyp counts when it covers a thousandth of the picture in ten frames or
more. Sequences are kept in --cache, so that a change of the follower need not render again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from polypscope.pipeline.against_truth import AgainstTruth
from polypscope.pipeline.engine import Eye, Memory, Settings
from polypscope.pipeline.findings import Findings, Working
from polypscope.pipeline.models import load_models
from polypscope.records import GroundTruth, TruePolyp
from polypscope.runtime.jobs import run_jobs
from polypscope.simulator import sequence

SIDE, FPS, FIRST_SEED, LEAST_FRAMES = 384, 25, 900_000, 10


def see(cache: Path, frames: int, number: int) -> Path:
    """Render one sequence and keep what the eye finds in it, with the truth."""
    path = cache / f"{number:03d}.npz"
    if path.exists():
        return path
    clip = sequence(
        seed=FIRST_SEED + number // 4, index=number % 4, frames=frames, style="clinical", polyps="sampled",
        negatives=0.25, fov_deg=(80.0, 130.0), lens="fisheye", width=SIDE, height=SIDE,
    )  # fmt: skip
    models, settings = load_models(threads=1), Settings()
    working = Working.of((SIDE, SIDE), settings.working_px)
    eye = Eye(working, models.seer, settings, clip.camera, models.ranger)
    lines, labels = [], []
    for item in clip:
        lines.append(eye.look(item.frame).to_line())
        labels.append(item.truth.instances.astype(np.uint8))
    polyps = [(p.id, p.model.size_mm, p.model.paris) for p in clip.polyps]
    np.savez_compressed(path, labels=np.stack(labels), lines=np.array("\n".join(lines)), polyps=json.dumps(polyps))
    return path


def judge(path: Path) -> dict[str, object]:
    """Follow one sequence and compare with its truth."""
    settings = Settings()
    working = Working.of((SIDE, SIDE), settings.working_px)
    memory, truth = Memory(working, settings), AgainstTruth(working)
    with np.load(path) as data:
        labels, lines, polyps = data["labels"], str(data["lines"]).split("\n"), json.loads(str(data["polyps"]))
    known = {n: TruePolyp(n, size_mm=size, paris=paris) for n, size, paris in polyps}
    for index, line in enumerate(lines):
        findings = Findings.from_line(line, working.shape)
        visible = tuple(known[n] for n in np.unique(labels[index]).tolist() if n)
        truth.expect(GroundTruth(index, index / FPS, (SIDE, SIDE), visible, labels[index].astype(np.uint16)))
        truth.add(memory.take(findings))
    rows = []
    for outcome in truth.outcomes():
        if outcome.visible_frames < LEAST_FRAMES:
            continue
        main = max(
            outcome.tracks, key=lambda n: len(next(t for t in memory.tracks() if t.id == n).indices), default=None
        )
        size = None if main is None else memory.sizes.final(main)
        rows.append(
            {
                "polyp": outcome.polyp.id,
                "true_mm": outcome.polyp.size_mm,
                "paris": outcome.polyp.paris,
                "visible": outcome.visible_frames,
                "hit": outcome.hit_frames,
                "tracks": len(outcome.tracks),
                "latency": outcome.latency_frames,
                "size": None if size is None else asdict(size),
            }
        )
    return {"name": path.stem, "seconds": len(lines) / FPS, "polyps": rows, "false": len(truth.false_tracks()),
            "negative": not polyps}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=24)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path("build/follow_simulated"))
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    numbers = list(range(options.sequences))
    seen = run_jobs(partial(see, options.cache, options.frames), numbers, jobs=options.jobs, label="seeing")
    for failure in seen.failures:
        print(f"{failure.name}: {failure.sentence}")
    results = [judge(path) for path in seen.good]
    for row in results:
        print(json.dumps(row))
    summarise(results)


def summarise(results: list[dict]) -> None:
    """Print the figures that the issue asks for."""
    polyps = [p for r in results for p in r["polyps"]]
    found = [p for p in polyps if p["tracks"]]
    minutes = sum(r["seconds"] for r in results) / 60
    negative = [r for r in results if r["negative"]]
    negative_minutes = sum(r["seconds"] for r in negative) / 60
    print(f"polyps that could be seen     {len(polyps)} in {minutes:.1f} min")
    if not found:
        return
    latency = np.array([p["latency"] for p in found])
    print(f"found                         {100 * len(found) / len(polyps):.1f} %")
    middle, late = np.percentile(latency, [50, 90])
    print(f"latency, frames               median {middle:.0f}, 90th percentile {late:.0f}")
    print(f"false tracks per minute       {sum(r['false'] for r in results) / minutes:.2f}")
    if negative_minutes:
        print(f"alarms per negative minute    {sum(r['false'] for r in negative) / negative_minutes:.2f}")
    print(f"one track per polyp           {100 * np.mean([p['tracks'] == 1 for p in found]):.1f} %")
    sized = [p for p in found if p["size"] and p["size"]["interval_mm"]]
    if sized:
        inside = [p["size"]["interval_mm"][0] <= p["true_mm"] <= p["size"]["interval_mm"][1] for p in sized]
        error = [abs(p["size"]["long_mm"] - p["true_mm"]) for p in sized]
        print(f"size inside its interval      {100 * np.mean(inside):.1f} % of {len(sized)}")
        print(f"size error                    mean {np.mean(error):.2f} mm, median {np.median(error):.2f} mm")


if __name__ == "__main__":
    main()
