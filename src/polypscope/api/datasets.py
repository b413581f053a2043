"""Data sets: what is known, what is wrong with a copy, and bringing one into a common layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.outcome import CheckReport, Conversion

__all__ = ["DatasetList", "check", "convert", "info", "list_all"]


@dataclass(frozen=True)
class DatasetList:
    """The cards of all known data sets."""

    cards: tuple[DatasetCard, ...]


def list_all() -> DatasetList:
    """List the data sets that Polypscope reads."""
    from polypscope.datasets.registry import DATASETS
    from polypscope.runtime.console import say, show_table

    cards = tuple(dataset.card for dataset in DATASETS.values())
    rows = [(card.name, card.kind, card.frames, card.licence) for card in cards]
    show_table("Data sets", ("name", "kind", "frames", "licence"), rows)
    say("More on one: polypscope datasets info NAME")
    return DatasetList(cards)


def info(name: str) -> DatasetCard:
    """Show the card of a data set: licence, citation, how to obtain it, the folders it must have.

    Parameters
    ----------
    name
        Name of the data set, as `polypscope datasets list` shows it.
    """
    from polypscope.datasets.registry import get_dataset
    from polypscope.runtime.console import say

    card = get_dataset(name).card
    facts = {
        "name": card.name,
        "kind": card.kind,
        "frames": "any" if card.frames is None else f"{card.frames:,}",
        "licence": card.licence,
        "weights trained on it may be passed on": "yes, with attribution" if card.shipped_weights else "no",
        "citation": card.citation or "–",
        "obtain": card.obtain,
        "layout": card.layout,
        "remarks": card.remarks or "–",
    }
    say(card.title)
    for key, value in facts.items():
        say(f"  {key}: {value}")
    return card


def check(name: str, root: Path, *, jobs: int = 1) -> CheckReport:
    """Read a whole copy of a data set and name every fault in it.

    Finds missing and left-over masks, images and masks of different size, all-black masks, broken files, frames that
    occur twice, stray files, and whatever else a data set can have wrong. Exits with 1 when there is a fault.

    Parameters
    ----------
    name
        Name of the data set, as `polypscope datasets list` shows it.
    root
        Folder that holds the data set.
    jobs
        Processes to use; -1 takes every core.
    """
    from polypscope.datasets.registry import get_dataset
    from polypscope.runtime.console import say, show_table

    report = get_dataset(name).check(root, jobs=jobs)
    say(
        f"{report.dataset}: {report.cases} cases, {report.clips} clips, {report.frames:,} frames, "
        f"{report.masks:,} masks, {report.polyp_frames:,} frames with a polyp."
    )
    for remark in report.notes:
        say(f"Remark: {remark}.")
    if report.problems:
        rows = [(problem.kind, problem.path, problem.text) for problem in report.problems]
        show_table(f"{len(rows)} faults", ("kind", "file", "what"), rows)
    else:
        say("No fault found.")
    return report


def convert(name: str, root: Path, out: Path, *, to: Literal["folder", "sun-seg"] = "folder") -> Conversion:
    """Bring a data set into a common layout, with COCO annotations and a manifest.

    "folder" writes images/CASE/CLIP and masks/CASE/CLIP, which `datasets check folder` reads; "sun-seg" writes
    SPLIT/Frame/CLIP and SPLIT/GT/CLIP, which `evaluate segmentation` reads. Image files are copied byte for byte.

    Parameters
    ----------
    name
        Name of the data set, as `polypscope datasets list` shows it.
    root
        Folder that holds the data set.
    out
        Folder to write; made when it is not there.
    to
        Layout to write.
    """
    from polypscope.datasets.converting import convert_dataset
    from polypscope.datasets.registry import get_dataset
    from polypscope.io.paths import require_folder
    from polypscope.records.errors import UsageError
    from polypscope.runtime.console import note, progress, say
    from polypscope.runtime.runlog import RunLog

    dataset = get_dataset(name)
    root = require_folder(root, f"folder of {dataset.card.title}")
    if out.resolve().is_relative_to(root.resolve()):
        raise UsageError(f"{out}: expected a folder outside {root}, found one inside it; choose another.")
    total = sum(len(clip.frames) for clip in dataset.files(root))
    with RunLog(out, "datasets convert", {"name": name, "root": root, "out": out, "to": to}) as log:
        with progress("converting", total, "frames") as ticker:
            done = convert_dataset(dataset, root, out, layout=to, step=ticker.step)
        log.record(frames=done.frames, masks=done.masks)
        for sentence in done.skipped:
            note(sentence)
            log.add_note(sentence)
    say(f"{done.frames:,} frames and {done.masks:,} masks written to {out}; {len(done.skipped)} frames left out.")
    return done
