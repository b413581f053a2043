"""Raters' labels of image challenges as a table: one row per frame and rater, one column per challenge."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polypscope.evaluation.detection.challenges import CHALLENGES, Labels
from polypscope.evaluation.detection.tables import TruthTable
from polypscope.io.detection_methods import did_you_mean
from polypscope.io.tables import read_table, write_table
from polypscope.records.errors import InputError

__all__ = ["read_challenge_labels", "write_challenge_labels"]


def read_challenge_labels(path: str | Path, truth: TruthTable) -> Labels:
    """Read the raters' labels: columns video (not for stills), frame, rater, and one column of 0 and 1 per challenge.

    An empty cell means "not rated". Frames that nobody rated stay out of the breakdown.
    """
    table = read_table(path, columns=("frame", "rater"))
    known = [name for name in table.columns if name in CHALLENGES]
    unknown = [name for name in table.columns if name not in (*CHALLENGES, "video", "frame", "rater")]
    if unknown or not known:
        found = unknown[0] if unknown else ", ".join(table.columns)
        raise InputError(
            f"{path}, line 1: expected columns video, frame, rater and challenges ({', '.join(CHALLENGES)}), found "
            f"{found!r}; {did_you_mean(found, list(CHALLENGES))}."
        )
    if "video" not in table.columns and len(truth.videos) > 1:
        raise InputError(f"{path}, line 1: expected a column 'video', since the truth has several videos; add it.")
    raters = tuple(sorted({str(rater) for rater in table["rater"]}))
    values = np.full((truth.frame_count, len(raters), len(known)), np.nan)
    names = {(int(truth.video[row]), name): row for row, name in enumerate(truth.frame_names)}
    for line, row in enumerate(table.iter_rows(named=True), start=2):
        video = str(row["video"]) if "video" in row else truth.videos[0]
        if video not in truth.videos:
            raise InputError(
                f"{path}, line {line}: expected a video of the truth, found {video!r}; "
                f"{did_you_mean(video, truth.videos)}."
            )
        frame = row["frame"]
        if isinstance(frame, int):
            place = int(truth.locate(video, np.array([frame]))[0])
        else:
            place = names.get((truth.videos.index(video), Path(str(frame)).stem), -1)
        if place < 0:
            raise InputError(f"{path}, line {line}: expected a frame of {video!r}, found {frame!r}; correct it.")
        rater = raters.index(str(row["rater"]))
        for c, challenge in enumerate(known):
            value = row[challenge]
            if value is None:
                continue
            if value not in (0, 1):
                raise InputError(
                    f"{path}, line {line}: expected 0, 1 or nothing for {challenge}, found {value!r}; correct it."
                )
            if np.isfinite(values[place, rater, c]):
                raise InputError(
                    f"{path}, line {line}: expected a rater once per frame, found {row['rater']!r} twice; remove one."
                )
            values[place, rater, c] = float(value)
    return Labels(raters, tuple(known), values)


def write_challenge_labels(path: str | Path, labels: Labels, truth: TruthTable) -> Path:
    """Write labels in the form that `read_challenge_labels` reads; frames that a rater skipped have no row."""
    import polars as pl

    rated = np.isfinite(labels.values)
    frame, rater = np.nonzero(rated.any(axis=2))
    columns: dict[str, object] = {
        "video": [truth.videos[v] for v in truth.video[frame]],
        "frame": truth.index[frame],
        "rater": [labels.raters[r] for r in rater],
    }
    for c, challenge in enumerate(labels.challenges):
        values = labels.values[frame, rater, c]
        columns[challenge] = [None if np.isnan(v) else int(v) for v in values]
    return write_table(path, pl.DataFrame(columns))
