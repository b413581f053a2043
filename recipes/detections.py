"""Sequences of frames through `analyze`, and its detections counted by the MICCAI 2015 rules, for the model card.

    python recipes/detections.py ../shared/data/cvc-clinicdb --name "CVC-ClinicDB" \
        --card src/polypscope/runtime/weights/polypscope-segmenter-int8.json

ROOT holds one folder for each sequence, with `images` and `masks` inside. What is counted is what `analyze` shows: a
polyp whose alarm has not started yet is a miss, although its frame may have been segmented well. The frames of
CVC-ClinicDB are samples of a video, so a sequence of 25 of them is a much harder thing to follow than 25 frames in a
row. A detection is right if its point lies in a polyp; further ones in the same polyp do not count; every other one is
false. With --card, the counts and F1 replace those of the same data on the card.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from polypscope.api.analyze import analyze
from polypscope.api.evaluate_detection import detection
from polypscope.io.detections_csv import read_detections_csv, write_detections_csv
from polypscope.io.images import IMAGE_SUFFIXES
from polypscope.io.paths import list_files, list_folders
from polypscope.runtime.cards import Score, add_scores
from polypscope.runtime.console import say, show_table

PROTOCOL = "polyps shown by `analyze`, by the MICCAI 2015 rules (point in mask)"


def gather(sequences: list[Path], results: list[Path], out: Path) -> Path:
    """One table of all detections, with sequences and frames named as in the truth."""
    from dataclasses import replace

    rows = []
    for sequence, folder in zip(sequences, results, strict=True):
        names = [file.stem for file in list_files(sequence / "images", IMAGE_SUFFIXES)]
        for row in read_detections_csv(folder / "detections.csv").rows:
            rows.append(replace(row, video=sequence.name, frame=names[int(row.frame)], pts_s=None))
    return write_detections_csv(out, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--name", help="of the data on the card; by default the folder's name")
    parser.add_argument("--out", type=Path, default=Path("build/detections"))
    parser.add_argument("--model")
    parser.add_argument("--card", type=Path, help="model card (JSON) to write the counts into")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    sequences = [folder for folder in list_folders(options.root) if (folder / "images").is_dir()]
    pictures = [folder / "images" for folder in sequences]
    done = analyze(
        *pictures, out=options.out / "analyze", model=options.model, overlay=False, overwrite=True, jobs=options.jobs
    )
    if done.failures:
        raise SystemExit(1)
    table = gather(sequences, [video.out for video in done.videos], options.out / "polypscope.csv")
    study = detection(options.root, f"polypscope={table}", out=options.out / "study", kind="videos")
    method = study.result.method("polypscope")
    rows = []
    for name, (tp, fp, _, fn, *_) in zip(study.result.truth.videos, method.video_counts.tolist(), strict=True):
        rows.append((name, tp, fp, fn, round(2 * tp / max(1, 2 * tp + fp + fn), 3)))
    tp, fp, fn = (sum(row[column] for row in rows) for column in (1, 2, 3))
    f1 = 2 * tp / max(1, 2 * tp + fp + fn)
    rows.append(("all", tp, fp, fn, round(f1, 3)))
    show_table("Detections by the MICCAI 2015 rules", ("sequence", "TP", "FP", "FN", "F1"), rows)
    if options.card is not None:
        label = f"{options.name or options.root.name}, {len(sequences)} sequences"
        frames = study.result.truth.frame_count
        counts = (("TP", tp), ("FP", fp), ("FN", fn), ("F1 of tracks", round(f1, 4)))
        add_scores(
            options.card,
            [Score(data=label, metric=name, value=value, protocol=PROTOCOL, images=frames) for name, value in counts],
        )
        say(f"wrote the counts into {options.card}")


if __name__ == "__main__":
    main()
