"""How long the whole detection study takes at the paper's size, step by step, and exact maxima beside filled images.

    python benchmarks/detection_study.py [--threads 2]

18 videos, 17,574 frames up to 1920 × 1080, six methods, all 63 subsets, three strategies, statistics, report. Wall and
processor time are printed; on a busy machine the latter is the one to compare.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads

    from polypscope.evaluation.detection import evaluate_detection
    from polypscope.evaluation.detection.synthetic import (
        PAPER_VIDEOS,
        example_methods,
        simulate_labels,
        simulate_method,
        simulate_truth,
    )
    from polypscope.evaluation.fusion import Sigma, fuse
    from polypscope.evaluation.fusion_search import search_combinations
    from polypscope.io.detection_results import write_detection_results
    from polypscope.report.detection import study_comparisons, write_detection_report

    rows: list[tuple[str, float, float]] = []

    def timed(name: str, work: Callable[[], object]) -> object:
        wall, cpu = time.perf_counter(), time.process_time()
        value = work()
        rows.append((name, time.perf_counter() - wall, time.process_time() - cpu))
        return value

    # Compiled loops are loaded from their cache, or compiled once per installation, before the clock starts.
    tiny = PAPER_VIDEOS[11:12]
    small = simulate_truth(tiny)
    few = [simulate_method(small, tiny, m) for m in example_methods()[:2]]
    evaluate_detection(small, few)
    search_combinations(small, few, sigma=Sigma(24))
    fuse(small, few, "saliency", sigma=Sigma(24))

    truth = timed("make up the truth", lambda: simulate_truth(PAPER_VIDEOS))
    methods = timed("make up six methods", lambda: [simulate_method(truth, PAPER_VIDEOS, m) for m in example_methods()])
    labels = simulate_labels(truth)
    result = timed("counts, time, curves, breakdowns", lambda: evaluate_detection(truth, methods, labels=labels))
    search = timed(
        "63 subsets × 3 strategies",
        lambda: search_combinations(truth, methods, sigma=Sigma.parse("3%"), threads=threads),
    )
    comparisons = timed("statistics and rankings", lambda: study_comparisons(result))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        timed("tables on disk", lambda: write_detection_results(out, result, search=search))
        timed(
            "report",
            lambda: write_detection_report(out / "report.html", result, search=search, comparisons=comparisons),
        )
    print(f"{'step':36s} {'wall s':>8s} {'cpu s':>8s}")
    for name, wall, cpu in rows:
        print(f"{name:36s} {wall:8.2f} {cpu:8.2f}")
    print(f"{'all':36s} {sum(r[1] for r in rows):8.2f} {sum(r[2] for r in rows):8.2f}")
    _against_filled_images(truth, methods)


def _against_filled_images(truth, methods, frames: int = 60) -> None:  # type: ignore[no-untyped-def]
    """The same maxima by filling a saliency image per frame, interleaved with ours."""
    from polypscope.evaluation.fusion import saliency_maxima

    several = np.flatnonzero(sum(m.outputs > 0 for m in methods) >= 4)
    busy = several[np.linspace(0, len(several) - 1, frames).astype(int)]
    ours = filled = 0.0
    for f in busy:
        x = np.concatenate([m.x[m.first[f] : m.first[f + 1]] for m in methods]).astype(int)
        y = np.concatenate([m.y[m.first[f] : m.first[f + 1]] for m in methods]).astype(int)
        height, width = int(truth.height_px[f]), int(truth.width_px[f])
        x, y = np.clip(x, 0, width - 1), np.clip(y, 0, height - 1)
        start = time.process_time()
        _, value = saliency_maxima(x, y, 24.0)
        ours += time.process_time() - start
        start = time.process_time()
        gx = np.exp(-((np.arange(width)[None] - x[:, None]) ** 2) / (2 * 24.0**2))
        gy = np.exp(-((np.arange(height)[None] - y[:, None]) ** 2) / (2 * 24.0**2))
        image = gy.T @ gx
        filled += time.process_time() - start
        assert abs(image.max() - value) < 1e-9 * value
    print(
        f"maxima of {len(busy)} frames: exact search {1e3 * ours / len(busy):.3f} ms per frame, filled image "
        f"(separable) {1e3 * filled / len(busy):.3f} ms; ratio {filled / ours:.0f}"
    )


if __name__ == "__main__":
    main()
