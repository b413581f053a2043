"""Procedures that no model was trained or tuned on: polyps found, how soon, false tracks, tracks per polyp, sizes.

    python benchmarks/follow_simulated.py --procedures 24 --jobs 2

Each procedure is a simulated passage of 8 s through a colon of its own, with polyps of its own and a field of view from
80 to 130 degrees; one in four has no polyp. There are as many in clinical style as in clean style. Their seeds are kept
apart from those of training and from those that `recipes/follow.py` tunes on.

What counts:
- A polyp counts if it covers a thousandth of the picture (12 x 12 of 384 x 384 pixels) in ten frames or more.
- Found: one of the tracks is its own. A track is a polyp's own if at least half of the points it showed lie in it; a
  track that is no polyp's own is false.
- Latency: frames from its first appearance to the first alarm in it, for two meanings of appearance: it covers a
  thousandth of the picture, or five thousandths (27 x 27 pixels, what an observer would hardly miss). A polyp that was
  missed counts as later than any other, so misses can't improve the median.
- Empty frames with a detection: what the segmenter alone would call a polyp in frames that show none, before following.
- Size: of the longest track of each polyp, against the true size of the model.

--cache keeps pictures and, for each set of weights, what was seen in them: other settings of the follower need no
network, other weights no rendering.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from polypscope.pipeline.engine import Settings
from polypscope.pipeline.follow import FollowSettings
from polypscope.pipeline.models import load_models
from polypscope.runtime.console import show_table
from polypscope.runtime.jobs import run_jobs
from polypscope.training.procedures import CLEAR_SHARE, TEST, VISIBLE_SHARE, Judged, Procedure, judged, procedures, seen

STYLES = ("clinical", "clean")


def judge(cache: Path, model: str | None, procedure: Procedure) -> Judged:
    """One procedure from first to last, with the settings that ship."""
    models = load_models(model, threads=1)
    settings = Settings(threshold=models.threshold, follow=FollowSettings(threshold=models.threshold))
    return judged(seen(cache, procedure, models), [settings])[0]


def share(hits: int, of: int) -> str:
    """A share in percent with its 95 % interval (Wilson).

    >>> share(38, 40)
    '95.0 % of 40 (83.5-98.6)'
    """
    if of == 0:
        return "-"
    z, p = 1.96, hits / of
    middle, half = p + z * z / (2 * of), z * np.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    low, high = ((middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of))
    return f"{100 * p:.1f} % of {of} ({100 * low:.1f}-{100 * high:.1f})"


def late(latencies: list[int | None]) -> str:
    """Median and 90th percentile of latencies in frames, None being later than any."""
    if not latencies:
        return "-"
    ordered = sorted(float("inf") if n is None else n for n in latencies)
    middle, slow = (ordered[min(int(q * len(ordered)), len(ordered) - 1)] for q in (0.5, 0.9))
    return " / ".join("never" if np.isinf(n) else f"{n:.0f}" for n in (middle, slow))


def figures(results: list[Judged]) -> dict[str, str]:
    """The figures of several procedures, by name."""
    polyps = [row for result in results for row in result.polyps]
    found = [row for row in polyps if row["tracks"]]
    sized = [row for row in found if row["interval_mm"]]
    minutes = sum(result.seconds for result in results) / 60
    negative = [result for result in results if result.negative]
    negative_minutes = sum(result.seconds for result in negative) / 60
    inside = [row["interval_mm"][0] <= row["true_mm"] <= row["interval_mm"][1] for row in sized]
    error = [abs(row["long_mm"] - row["true_mm"]) for row in sized]
    relative = np.array([row["long_mm"] / row["true_mm"] for row in sized])
    return {
        "procedures, minutes": f"{len(results)}, {minutes:.1f}",
        "polyps found": share(len(found), len(polyps)),
        f"polyps found that reach {CLEAR_SHARE:.1%} of the picture": share(
            sum(row["was_clear"] for row in found), sum(row["was_clear"] for row in polyps)
        ),
        f"latency from {VISIBLE_SHARE:.1%} of the picture, median / 90th": late([row["latency"] for row in polyps]),
        f"latency from {CLEAR_SHARE:.1%} of the picture, median / 90th": late(
            [row["clear_latency"] for row in polyps if row["was_clear"]]
        ),
        "false tracks per minute": f"{sum(r.false_tracks for r in results) / minutes:.2f}" if minutes else "-",
        "alarms per minute without polyps": (
            f"{sum(r.false_tracks for r in negative) / negative_minutes:.2f} in {negative_minutes:.1f} min"
            if negative
            else "-"
        ),
        "empty frames with a detection": share(sum(r.alarmed for r in results), sum(r.empty for r in results)),
        "one track per polyp found": share(sum(row["tracks"] == 1 for row in found), len(found)),
        "frames with the polyp shown": (
            f"{100 * sum(r['hit'] for r in polyps) / sum(r['visible'] for r in polyps):.1f} %" if polyps else "-"
        ),
        "true size inside its interval": share(sum(inside), len(sized)),
        "size error, median / mean, mm": f"{np.median(error):.2f} / {np.mean(error):.2f}" if sized else "-",
        "size error relative to the truth, median": f"{100 * np.median(np.abs(relative - 1)):.1f} %" if sized else "-",
        "estimate / truth, median": f"{np.median(relative):.2f}" if sized else "-",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--procedures", type=int, default=24, help="of each style")
    parser.add_argument("--frames", type=int, default=200, help="of each procedure, at 25 per second")
    parser.add_argument("--seed", type=int, default=TEST, help="first seed; another one for another draw")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--model", help="name or path of another segmenter than the shipped one")
    parser.add_argument("--cache", type=Path, default=Path("build/follow_simulated"))
    parser.add_argument("--rows", action="store_true", help="print every procedure as JSON, too")
    options = parser.parse_args()
    todo = [p for style in STYLES for p in procedures(options.seed, options.procedures, style, options.frames)]
    done = run_jobs(
        partial(judge, options.cache, options.model), todo, names=[p.name for p in todo], jobs=options.jobs,
        label="procedures",
    )  # fmt: skip
    for failure in done.failures:
        print(f"{failure.name}: {failure.sentence}")
    if options.rows:
        for result in done.good:
            print(json.dumps(asdict(result)))
    by_style = {style: [r for r in done.good if f"-{style}-" in r.name] for style in STYLES}
    columns = {**{style: figures(results) for style, results in by_style.items()}, "all": figures(done.good)}
    rows = [(name, *(values[name] for values in columns.values())) for name in columns["all"]]
    show_table("Simulated procedures, never seen before", ("figure", *columns), rows)


if __name__ == "__main__":
    main()
