"""Speed of the segmentation benchmark beside PySODMetrics and beside decoding alone, from PNG files.

    python benchmarks/segmentation.py --peer .venv-pysod      # makes that environment if it is not there

Truth of 1158 x 1008 and predictions of 448 x 256 are written to a temporary folder. Then, in turn and one thread each,
three workers take the same files: decoding alone, ours (all protocol measures and our outlines), and PySODMetrics (S,
E, F, weighted F, MAE, and Dice, IoU, sensitivity and specificity by its FmeasureV2). CPU time is measured, so that a
busy machine disturbs little; ratios are of medians over rounds. PySODMetrics pins its own numpy and OpenCV, hence the
environment of its own. `--scaling` adds: frames per second of the whole command with one and two jobs, and the peak
memory of a short and a four times longer data set.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

PEER = """
import json, sys, time
import cv2, numpy as np, py_sod_metrics as m
cv2.setNumThreads(1)
def metrics():
    same = dict(with_adaptive=False, with_dynamic=True, with_binary=False)
    handlers = dict(dice=m.DICEHandler(**same), iou=m.IOUHandler(**same), sen=m.SensitivityHandler(**same),
                    spe=m.SpecificityHandler(**same))
    others = [m.Emeasure(), m.Fmeasure(), m.WeightedFmeasure(), m.MAE()]
    return [m.Smeasure(), *others, m.FmeasureV2(metric_handlers=handlers)]
for line in sys.stdin:
    pairs = json.loads(line)
    start = time.process_time()
    all_metrics = metrics()
    for truth, prediction in pairs:
        t, p = cv2.imread(truth, 0), cv2.imread(prediction, 0)
        p = cv2.resize(p, t.shape[::-1])
        for metric in all_metrics:
            metric.step(pred=p, gt=t)
    print(json.dumps([time.process_time() - start, float(np.mean(all_metrics[0].sms))]), flush=True)
"""


def make_data(root: Path, clips: int, frames: int, seed: int = 0) -> list[tuple[str, str]]:
    """Lobed objects of 2 to 15 % of the picture and soft, slightly wrong predictions of them."""
    import cv2
    import numpy as np

    rng = np.random.default_rng(seed)
    pairs = []
    angle = np.linspace(0, 2 * np.pi, 120, endpoint=False)
    for c in range(clips):
        centre, radius = rng.uniform((300, 300), (850, 700)), rng.uniform(85, 230)
        lobes = [(k, rng.uniform(0, 0.16 / k), rng.uniform(0, 6.3)) for k in range(2, 7)]
        shape = radius * (1 + sum(a * np.cos(k * angle + b) for k, a, b in lobes))
        for f in range(frames):
            images = []
            for wobble in (0.0, 9.0):
                points = centre + 5.0 * f + rng.normal(0, wobble, 2)
                outline = points + np.stack([shape * np.cos(angle), shape * np.sin(angle)], 1) * (1 + wobble / 150)
                image = np.zeros((1008, 1158), np.uint8)
                cv2.fillPoly(image, [np.rint(outline).astype(np.int32)], 255)
                images.append(image)
            soft = cv2.resize(cv2.GaussianBlur(images[1], (0, 0), 6), (448, 256)).astype(float)
            soft = np.where(
                soft > 2, soft * rng.uniform(0.85, 1) + rng.normal(0, 4, soft.shape), rng.random(soft.shape) < 0.02
            )
            names = [root / kind / f"case{c + 1}" / f"{f}.png" for kind in ("truth", "method")]
            for name, image in zip(names, (images[0], np.clip(soft, 0, 255).astype(np.uint8)), strict=True):
                name.parent.mkdir(parents=True, exist_ok=True)
                cv2.imwrite(str(name), image)
            pairs.append((str(names[0]), str(names[1])))
    return pairs


def decode_alone(pairs: list[tuple[str, str]]) -> float:
    """CPU seconds to read the files as the protocol does: decoded, and the prediction brought to the truth's size."""
    import cv2

    start = time.process_time()
    for truth, prediction in pairs:
        t = cv2.imread(truth, cv2.IMREAD_GRAYSCALE)
        cv2.resize(cv2.imread(prediction, cv2.IMREAD_GRAYSCALE), t.shape[::-1])
    return time.process_time() - start


def ours(pairs: list[tuple[str, str]], outlines: bool) -> tuple[float, float]:
    """CPU seconds of our reader and every measure, and the mean S."""
    from polypscope.datasets.mask_folders import FilePair
    from polypscope.evaluation.segmentation import STILLS, PairedClip, Spec, score_clip
    from polypscope.evaluation.segmentation.clips import summarise

    spec = Spec(drop_first=0, drop_last=0, outlines=outlines)
    start = time.process_time()
    scored = score_clip(PairedClip("x", [FilePair("f", Path(t), Path(p)) for t, p in pairs]), spec)
    seconds = time.process_time() - start
    return seconds, summarise([scored], STILLS).values["Smeasure"]


def peer_environment(folder: Path) -> Path:
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        print(f"making {folder} with pysodmetrics ...")
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "pysodmetrics"], check=True)
    return python


def side_by_side(pairs: list[tuple[str, str]], rounds: int, peer: Path | None) -> None:
    import cv2

    cv2.setNumThreads(1)
    ours(pairs[:1], True)  # compile before the clock runs
    worker = None
    if peer:
        worker = subprocess.Popen([peer_environment(peer), "-c", PEER], stdin=-1, stdout=-1, text=True)
    seconds: dict[str, list[float]] = {}
    structure = {}
    for _ in range(rounds):
        seconds.setdefault("decoding alone", []).append(decode_alone(pairs))
        for name, outlines in (("ours, protocol", False), ("ours, and outlines", True)):
            spent, structure["ours"] = ours(pairs, outlines)
            seconds.setdefault(name, []).append(spent)
        if worker and worker.stdin and worker.stdout:
            worker.stdin.write(json.dumps(pairs) + "\n")
            worker.stdin.flush()
            spent, structure["PySODMetrics"] = json.loads(worker.stdout.readline())
            seconds.setdefault("PySODMetrics", []).append(spent)
    if worker and worker.stdin:
        worker.stdin.close()
        worker.wait()
    floor = statistics.median(seconds["decoding alone"])
    best = statistics.median(seconds["ours, and outlines"])
    print(f"{len(pairs)} frames, truth 1158x1008, predictions 448x256, PNG, one thread, median of {rounds} rounds")
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(f"{name:20} {middle / len(pairs) * 1e3:8.2f} ms/frame   {middle / floor:6.2f} x decoding   "
              f"{middle / best:6.2f} x ours")  # fmt: skip
    print("mean S:", ", ".join(f"{name} {value:.6f}" for name, value in structure.items()))


def scaling(root: Path) -> None:
    """The whole command: throughput with one and two jobs, and peak memory of short and long data sets."""
    make_data(root / "short", 4, 12)
    make_data(root / "long", 8, 72)
    command = [sys.executable, "-m", "polypscope", "evaluate", "segmentation"]
    for name, jobs, frames in (("short", 1, 48), ("long", 1, 576), ("long", 2, 576)):
        folders = [str(root / name / "truth"), str(root / name / "method"), "--replicates", "0", "--jobs", str(jobs)]
        start = time.perf_counter()
        process = subprocess.Popen([*command, *folders], stdout=-1, stderr=-1)
        process.communicate()
        seconds = time.perf_counter() - start
        print(f"{name:6} jobs {jobs}: {seconds:6.1f} s wall for {frames} frames")
    for name in ("short", "long"):
        code = (
            "import resource, sys; from pathlib import Path;"
            "from polypscope.api.evaluate_segmentation import evaluate_segmentation as e;"
            f"e(Path(r'{root / name / 'truth'}'), [Path(r'{root / name / 'method'}')], replicates=0);"
            "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, 'MB', file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        print(f"{name:6} {done.stderr.strip().splitlines()[-1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", type=Path, help="environment for PySODMetrics; made if absent; left out without it")
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scaling", action="store_true", help="also jobs and memory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pairs = make_data(Path(folder) / "frames", 4, max(1, arguments.frames // 4))
        side_by_side(pairs, arguments.rounds, arguments.peer)
        if arguments.scaling:
            scaling(Path(folder))
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()
