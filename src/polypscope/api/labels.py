"""Labels that follow from masks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from polypscope.datasets.mask_folders import TruthClip

__all__ = ["DerivedLabels", "derive_labels"]

Kind = Literal["edge", "scribble", "polygon", "box", "attributes"]


@dataclass(frozen=True)
class DerivedLabels:
    """What was derived: frames, clips, where it lies, and the attributes found by clip."""

    root: Path
    clips: int
    frames: int
    attributes: dict[str, tuple[str, ...]]
    failures: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 when a mask could not be read or a clip failed."""
        return 1 if self.failures else 0


@dataclass(frozen=True)
class _Task:
    clip: TruthClip
    out: Path
    kinds: tuple[str, ...]
    seed: int
    polygons: str


def derive_labels(
    root: Path,
    *,
    out: Path | None = None,
    kinds: tuple[Kind, ...] = ("edge", "scribble", "polygon", "box", "attributes"),
    polygons: Literal["random", "circumscribed", "inscribed"] = "random",
    attributes: Path | None = None,
    seed: int = 0,
    jobs: int = 1,
) -> DerivedLabels:
    """Derive boundary, scribble, polygon and box labels and visual attributes from masks.

    Writes Edge/, Scribble/ and Polygon/ beside each GT folder, with the masks' names, Polygon/polygons.json with the
    corners, Detection/bbox_annotation.json with tight boxes [x, y, width, height], and attributes.csv at the top.
    The same seed gives the same labels, whatever the number of jobs.

    Parameters
    ----------
    root
        Folder of masks: a SUN-SEG root, a data set with `GT/<clip>/`, clip folders, or masks/.
    out
        Where to write; beside the masks (inside root) without it.
    kinds
        Which labels to derive.
    polygons
        circumscribed polygons contain the mask, inscribed ones are contained; random draws one per frame.
    attributes
        CSV or JSON with the attributes that masks do not determine (SI, IB, HO, GH, OC), to be joined with ours.
    seed
        Fixes scribbles and the choice of polygon.
    jobs
        Processes; -1 uses every core.
    """
    from polypscope import DISCLAIMER
    from polypscope.datasets.mask_folders import find_truth, read_attributes
    from polypscope.runtime.console import note, say
    from polypscope.runtime.jobs import run_jobs
    from polypscope.runtime.runlog import RunLog

    clips, problems = find_truth(Path(root))
    target = Path(out) if out else Path(root)
    known = read_attributes(attributes) if attributes else {}
    arguments = {"root": root, "out": target, "kinds": list(kinds), "polygons": polygons, "seed": seed}
    with RunLog(target, "labels derive", arguments) as log:
        tasks = [_Task(clip, target, tuple(kinds), seed, polygons) for clip in clips]
        outcome = run_jobs(
            _derive, tasks, names=[clip.path for clip in clips], jobs=jobs, label="deriving", unit="clips"
        )
        failures = [f"{failure.name}: {failure.sentence}" for failure in outcome.failures]
        found: dict[str, tuple[str, ...]] = {}
        boxes: dict[Path, list[dict[str, Any]]] = {}
        corners: dict[Path, dict[str, Any]] = {}
        frames = 0
        for clip, value in zip(clips, outcome.values, strict=True):
            if value is None:
                continue
            frames += value["frames"]
            failures += value["failures"]
            labelled = known.get(clip.path, known.get(clip.name, ()))
            seen = [name for name in labelled if name not in ("FM", "SO", "LO", "OV", "SV")]
            found[clip.path] = (*seen, *value["attributes"])
            place = target / clip.subset
            boxes.setdefault(place / "Detection" / "bbox_annotation.json", []).extend(value["boxes"])
            corners.setdefault(place / "Polygon" / "polygons.json", {}).update(value["polygons"])
        if "box" in kinds:
            for path, annotations in boxes.items():
                _write_json(path, {"annotation": annotations})
        if "polygon" in kinds:
            for path, shapes in corners.items():
                _write_json(path, shapes)
        if "attributes" in kinds:
            _write_attributes(target / "attributes.csv", clips, found)
        for problem in problems:
            note(problem.text)
        for failure in failures:
            note(failure)
            log.add_note(failure)
        log.record(frames=frames, clips=len(found))
    say(f"{frames} frames of {len(found)} clips: {', '.join(kinds)} written to {target}")
    say(DISCLAIMER)
    return DerivedLabels(target, len(found), frames, found, tuple(failures))


def _derive(task: _Task) -> dict[str, Any]:
    """Labels of one clip; image files are written here, the rest is returned. Runs in a process of its own."""
    from polypscope.datasets.derived_labels import boundary, frame_seed, polygon, scribble, tight_box
    from polypscope.datasets.mask_statistics import attributes_of, mask_facts
    from polypscope.io.images import write_image
    from polypscope.io.protocol_images import read_grey_as_opencv
    from polypscope.records.errors import InputError

    clip = task.clip
    place = Path(clip.subset) if clip.subset else Path()
    inner = Path() if clip.is_stills else Path(clip.name)
    facts, boxes, polygons, failures = [], [], {}, []
    for name, file in clip.files.items():
        try:
            mask = read_grey_as_opencv(file) > (0 if clip.holds_ids else 128)
        except InputError as error:
            failures.append(str(error))
            continue
        rng = frame_seed(task.seed, clip.path, name)
        images: dict[str, Any] = {}
        if "edge" in task.kinds:
            images["Edge"] = boundary(mask)
        if "scribble" in task.kinds:
            images["Scribble"] = scribble(mask, rng)
        if "polygon" in task.kinds:
            kind = task.polygons
            if kind == "random":
                kind = "circumscribed" if rng.random() < 0.5 else "inscribed"
            shape = polygon(mask, kind)  # type: ignore[arg-type]
            images["Polygon"] = shape.filled
            polygons[str(inner / name)] = {"kind": shape.kind, "parts": [part.tolist() for part in shape.parts]}
        for folder, image in images.items():
            path = task.out / place / folder / inner / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_image(path, image)
        box = tight_box(mask)
        if box:
            identity = str(inner / name)
            size = {"width": mask.shape[1], "height": mask.shape[0]}
            boxes.append({"id": identity, "image_id": identity, "bbox": list(box), "area": int(mask.sum()), **size})
        facts.append(mask_facts(mask))
    found = () if clip.is_stills else attributes_of(facts)
    return {"frames": len(facts), "attributes": found, "boxes": boxes, "polygons": polygons, "failures": failures}


def _write_json(path: Path, data: Any) -> None:
    import json

    from polypscope.io.paths import write_text

    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(data, ensure_ascii=False) + "\n")


def _write_attributes(path: Path, clips: list[TruthClip], found: dict[str, tuple[str, ...]]) -> None:
    from polypscope.datasets.mask_folders import ATTRIBUTES
    from polypscope.io.paths import write_text

    lines = [",".join(("clip", *ATTRIBUTES))]
    for clip in clips:
        if clip.path in found:
            lines.append(",".join([clip.path, *("1" if a in found[clip.path] else "0" for a in ATTRIBUTES)]))
    write_text(path, "\n".join(lines) + "\n")
