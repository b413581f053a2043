"""Statistics of data sets with masks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polypscope.datasets.mask_folders import TruthClip

__all__ = ["DatasetStatistics", "dataset_statistics"]


@dataclass(frozen=True)
class DatasetStatistics:
    """By subset: clips, frames, frames with a polyp, attribute counts and medians; and the files written."""

    subsets: dict[str, dict[str, Any]]
    files: dict[str, Path] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 when something could not be read."""
        return 1 if self.failures else 0


def dataset_statistics(
    roots: list[Path], *, out: Path | None = None, attributes: Path | None = None, jobs: int = 1
) -> DatasetStatistics:
    """Draw centre bias, polyp size, contrast and attribute counts of data sets with masks.

    Contrast needs the frames: they are looked for as `Frame/<clip>/` or images/ beside the masks. Several roots are
    drawn side by side.

    Parameters
    ----------
    roots
        Folders of masks (SUN-SEG roots, data sets with `GT/<clip>/`, clip folders, masks/).
    out
        Folder for statistics.json, frames.parquet, pictures and report.html. Without it, a table is only printed.
    attributes
        CSV or JSON with the visual attributes of each clip; without it attributes.csv in a root is read, and what
        masks determine (FM, SO, LO, OV, SV) is computed.
    jobs
        Processes; -1 uses every core.
    """
    from polypscope import DISCLAIMER
    from polypscope.datasets.mask_folders import find_truth, read_attributes
    from polypscope.runtime.console import note, say, show_table
    from polypscope.runtime.jobs import run_jobs

    tasks: list[tuple[str, TruthClip]] = []
    known: dict[str, tuple[str, ...]] = read_attributes(attributes) if attributes else {}
    notes: list[str] = []
    for root in roots:
        clips, problems = find_truth(Path(root))
        notes += [problem.text for problem in problems]
        beside = Path(root) / "attributes.csv"
        if not attributes and beside.is_file():
            known |= read_attributes(beside)
        for clip in clips:
            name = clip.subset or Path(root).name
            tasks.append((f"{Path(root).name}: {name}" if len(roots) > 1 and clip.subset else name, clip))
    clips_only, names = [clip for _, clip in tasks], [clip.path for _, clip in tasks]
    outcome = run_jobs(_measure, clips_only, names=names, jobs=jobs, label="reading", unit="clips")
    failures = [f"{failure.name}: {failure.sentence}" for failure in outcome.failures]
    subsets = _gather(tasks, outcome.values, known)
    failures += [text for value in outcome.good for text in value["failures"]]
    rows = [[s.name, s.clips, s.frames, s.positives, *_medians(s)] for s in subsets]
    heads = ["subset", "clips", "frames", "with polyp", "size", "global contrast", "local contrast"]
    show_table("Data set", heads, rows)
    for text in [*notes, *failures]:
        note(text)
    files = _write(Path(out), subsets, tasks, outcome.values, [*notes, *failures], roots) if out else {}
    say(DISCLAIMER)
    summary = {
        s.name: {"clips": s.clips, "frames": s.frames, "positives": s.positives, "attributes": dict(s.attributes)}
        for s in subsets
    }
    return DatasetStatistics(summary, files, tuple(failures))


def _medians(subset: Any) -> list[str]:
    import numpy as np

    from polypscope.report.tables import written

    cells = []
    for name in ("share", "global_contrast", "local_contrast"):
        values = subset.values[name][~np.isnan(subset.values[name])]
        cells.append(written(float(np.median(values)) if len(values) else None))
    return cells


def _frame_file(clip: TruthClip, stem: str) -> Path | None:
    """The picture that belongs to a mask: in a folder Frame, images or the like where the mask's GT folder lies."""
    parts = clip.folder.parts
    for i in range(len(parts) - 1, -1, -1):
        if parts[i].lower() in ("gt", "masks", "mask", "ground truth", "groundtruth", "ground_truth"):
            for name in ("Frame", "Frames", "images", "image", "Original", "original", "rgb"):
                folder = Path(*parts[:i], name, *parts[i + 1 :])
                for suffix in (".jpg", ".png", ".jpeg", ".tif", ".bmp"):
                    if (folder / f"{stem}{suffix}").is_file():
                        return folder / f"{stem}{suffix}"
            break
    return None


def _measure(clip: TruthClip) -> dict[str, Any]:
    """Facts of the frames of one clip, its summed mask and its attributes. Runs in a process of its own."""
    import numpy as np

    from polypscope.datasets.mask_statistics import MAP_SIZE, attributes_of, centre_map, contrast, mask_facts
    from polypscope.io.images import read_rgb
    from polypscope.io.protocol_images import read_grey_as_opencv
    from polypscope.records.errors import InputError

    total, rows, facts, failures = np.zeros((MAP_SIZE, MAP_SIZE)), [], [], []
    for name, file in clip.files.items():
        try:
            mask = read_grey_as_opencv(file) > (0 if clip.holds_ids else 128)
        except InputError as error:
            failures.append(str(error))
            continue
        found = mask_facts(mask)
        facts.append(found)
        total += centre_map(mask)
        both = (float("nan"), float("nan"))
        picture = _frame_file(clip, name) if found.share > 0 else None
        if picture:
            try:
                rgb = read_rgb(picture)
                if rgb.shape[:2] == mask.shape:
                    both = contrast(rgb, mask)
                else:
                    failures.append(f"{picture}: expected the mask's size {mask.shape}, found {rgb.shape[:2]}.")
            except InputError as error:
                failures.append(str(error))
        rows.append(
            {
                "frame": name,
                "share": found.share,
                "centre_distance": found.centre_distance,
                "far_distance": found.far_distance,
                "global_contrast": both[0],
                "local_contrast": both[1],
            }
        )
    computed = () if clip.is_stills else attributes_of(facts)
    return {"rows": rows, "map": total, "attributes": computed, "failures": failures}


def _gather(
    tasks: list[tuple[str, TruthClip]], values: list[dict[str, Any] | None], known: dict[str, tuple[str, ...]]
) -> list[Any]:
    from collections import Counter

    import numpy as np

    from polypscope.report.dataset_statistics import DISTRIBUTIONS, SubsetStatistics

    subsets = []
    for name in dict.fromkeys(name for name, _ in tasks):
        chosen = [(clip, v) for (n, clip), v in zip(tasks, values, strict=True) if n == name and v is not None]
        rows = [row for _, value in chosen for row in value["rows"]]
        positive = [row for row in rows if row["share"] > 0]
        counts: Counter[str] = Counter()
        for clip, value in chosen:
            counts.update(known.get(clip.path, known.get(clip.name, value["attributes"])))
        bias = np.sum([value["map"] for _, value in chosen], axis=0) / max(1, len(positive))
        series = {key: np.array([row[key] for row in positive], float) for key in DISTRIBUTIONS}
        subsets.append(SubsetStatistics(name, len(chosen), len(rows), len(positive), bias, series, counts))
    return subsets


def _write(
    out: Path,
    subsets: list[Any],
    tasks: list[tuple[str, TruthClip]],
    values: list[dict[str, Any] | None],
    notes: list[str],
    roots: list[Path],
) -> dict[str, Path]:
    import json

    import polars as pl

    from polypscope.io.paths import write_bytes, write_text
    from polypscope.report.dataset_statistics import figures, sections, table
    from polypscope.report.page import write_page
    from polypscope.report.plots import render
    from polypscope.runtime.runlog import RunLog

    files: dict[str, Path] = {}
    with RunLog(out, "datasets stats", {"roots": list(roots)}) as log:
        rows = [
            {"subset": name, "clip": clip.name, **row}
            for (name, clip), value in zip(tasks, values, strict=True)
            if value is not None
            for row in value["rows"]
        ]
        part = out / "frames.parquet.part"
        pl.DataFrame(rows).write_parquet(part)
        files["frames.parquet"] = part.replace(out / "frames.parquet")
        pictures = {}
        for name, figure in figures(subsets).items():
            pictures[name] = render(figure, "svg")
            files[f"{name}.svg"] = write_bytes(out / f"{name}.svg", pictures[name])
            files[f"{name}.png"] = write_bytes(out / f"{name}.png", render(figure, "png"))
        summary = [
            {**{k: getattr(s, k) for k in ("name", "clips", "frames", "positives")}, "attributes": dict(s.attributes),
             "centre_bias": s.centre_bias.round(6).tolist()}
            for s in subsets
        ]  # fmt: skip
        text = json.dumps(summary, ensure_ascii=False) + "\n"
        files["statistics.json"] = write_text(out / "statistics.json", text)
        files["table.md"] = write_text(out / "table.md", table(subsets).markdown() + "\n")
        page = sections(subsets, pictures, notes)
        files["report.html"] = write_page(out / "report.html", "Data set statistics", page)
        for text in notes[:50]:
            log.add_note(text)
    return files
