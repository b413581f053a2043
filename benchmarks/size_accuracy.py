"""Sizes of predicted masks and depth over many polyps that nothing was trained, calibrated or chosen on.

    python benchmarks/size_accuracy.py [--sequences 80] [--jobs 2] [--seed 910000]

The first cell of `polypscope evaluate propagation`, without writing pictures, so that there is time for more polyps:
passages of 2 s, each through a colon of its own, 60 to 140 degrees. The segmenter sees every frame, every third is
measured, and the sizes of a polyp's frames are combined.
"""

from __future__ import annotations

import argparse
import contextlib
from functools import partial

from polypscope.api.evaluate_size import show_size_table
from polypscope.evaluation.size import SizeRow, evaluate
from polypscope.geometry import caliper
from polypscope.pipeline.measure import measurable
from polypscope.pipeline.models import load_models
from polypscope.pipeline.polyp_views import matching
from polypscope.records import PolypscopeError, SizeEstimate
from polypscope.runtime.console import say, show_table
from polypscope.runtime.jobs import run_jobs
from polypscope.simulator import sequence

FRAMES, EVERY = 50, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=80, help="sequences of each style")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=910_000, help="of the first sequence; each has its own")
    options = parser.parse_args()
    for place, style in enumerate(("clean", "clinical")):
        first = options.seed + place * options.sequences
        done = run_jobs(
            partial(measured, style), range(first, first + options.sequences), jobs=options.jobs, label=style
        )
        for failure in done.failures:
            say(f"sequence {failure.name}: {failure.sentence}")
        rows = [row for found in done.good for row in found]
        lost = sum(not row.estimates_mm for row in rows)
        show_size_table(evaluate([row for row in rows if row.estimates_mm]), f"Simulated, {style}", show_table)
        say(f"{lost} further polyps were in view but never outlined. Research software, not a medical device.")


def measured(style: str, seed: int) -> list[SizeRow]:
    """Every polyp of a sequence that was looked at, with its size if it was outlined."""
    models = load_models(threads=1)
    shown = sequence(seed, frames=FRAMES, polyps="sampled", negatives=0.0, style=style, fov_deg=(60.0, 140.0))
    sizes: dict[int, list[SizeEstimate]] = {}
    true_mm: dict[int, float] = {}
    for number, item in enumerate(shown):
        probability = models.seer.step(item.frame.rgb)
        if number % EVERY:
            continue
        mask, depth = measurable(probability), models.ranger.depth(item.frame.rgb, shown.camera)
        for polyp in item.truth.polyps:
            true = item.truth.instances == polyp.id
            if true.sum() < 30:
                continue
            true_mm[polyp.id] = polyp.size_mm
            part = matching(mask, true)
            if part is not None:
                with contextlib.suppress(PolypscopeError):
                    estimate = caliper.measure(part, depth, shown.camera, field_of_view=shown.fov)
                    sizes.setdefault(polyp.id, []).append(estimate)
    rows = []
    for polyp_id, true in true_mm.items():
        found = sizes.get(polyp_id)
        size = caliper.combine(found) if found else None
        rows.append(
            SizeRow(
                f"{seed}/{polyp_id}",
                true,
                {} if size is None else {"estimated": size.long_mm},
                None if size is None else size.interval_mm,
                len(found or ()),
                () if size is None else size.flags,
            )
        )
    return rows


if __name__ == "__main__":
    main()
