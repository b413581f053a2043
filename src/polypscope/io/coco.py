"""COCO files in and out: images, boxes, masks (polygons or run-length codes), scores.

Read besides the standard form: result lists (`[{"image_id", "bbox", "score"}]`), and the dialect of SUN-SEG
(`annotation` instead of `annotations`, ids that are strings, an annotation's id being its image's id).
What is written is the standard form. Every fault is reported with the file and the entry, e.g. `annotations[17].bbox`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polypscope.io.limits import check_pixels
from polypscope.io.paths import require_file, safe_join, write_text
from polypscope.io.rle import RunLengths, mask_from_polygons
from polypscope.records import BinaryMask, Box
from polypscope.records.errors import DamagedInput, InputError, UsageError, sentence

__all__ = ["CocoAnnotation", "CocoFile", "CocoId", "CocoImage", "read_coco", "read_coco_results", "write_coco"]

CocoId = int | str
Polygons = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class CocoImage:
    """One image of a COCO file; `extra` keeps further keys (such as SUN-SEG's `case_name`) as they were."""

    id: CocoId
    file_name: str
    width: int
    height: int
    extra: Mapping[str, Any] = field(default_factory=dict)

    def path_in(self, root: Path) -> Path:
        """Where the image is under `root`; a name that leaves it is refused."""
        return safe_join(root, self.file_name)


@dataclass(frozen=True)
class CocoAnnotation:
    """One polyp (or one detection, when it has a score); box in pixels, mask as polygons or run lengths."""

    id: CocoId
    image_id: CocoId
    category_id: CocoId
    box: Box | None = None
    segmentation: Polygons | RunLengths | None = None
    score: float | None = None
    area_px: float | None = None
    is_crowd: bool = False

    def mask(self, image: CocoImage) -> BinaryMask | None:
        """The outline as a mask of the image's size, or None if the annotation has only a box."""
        if self.segmentation is None:
            return None
        if isinstance(self.segmentation, RunLengths):
            return BinaryMask(self.segmentation.to_mask())
        check_pixels(image.width, image.height, f"image {image.id!r}")
        return BinaryMask(mask_from_polygons(self.segmentation, height=image.height, width=image.width))


@dataclass(frozen=True)
class CocoFile:
    """A whole COCO file. Look-ups are built once; iteration keeps the file's order."""

    images: tuple[CocoImage, ...]
    annotations: tuple[CocoAnnotation, ...] = ()
    categories: Mapping[CocoId, str] = field(default_factory=lambda: {1: "polyp"})
    info: Mapping[str, Any] = field(default_factory=dict)

    def by_image(self) -> dict[CocoId, list[CocoAnnotation]]:
        """Annotations of every image, with an empty list for an image without polyp (negatives are never dropped)."""
        grouped: dict[CocoId, list[CocoAnnotation]] = {image.id: [] for image in self.images}
        for annotation in self.annotations:
            grouped[annotation.image_id].append(annotation)
        return grouped

    def by_name(self) -> dict[str, CocoImage]:
        """Images by file name."""
        return {image.file_name: image for image in self.images}


def read_coco(path: str | Path) -> CocoFile:
    """Read a COCO file of images and annotations."""
    path = require_file(path, "COCO JSON file")
    content = _load(path)
    if isinstance(content, list):
        raise InputError(
            f"{path}: expected a COCO file with 'images' and 'annotations', found a list, as of detection results; "
            "give it where predictions are expected."
        )
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise DamagedInput(
            sentence(
                str(path), expected="a COCO object with a list 'images'", found=_kind(content), hint="export it anew"
            )
        )
    images = tuple(_image(path, f"images[{i}]", entry) for i, entry in enumerate(content["images"]))
    sizes = {image.id: image for image in images}
    if len(sizes) != len(images):
        raise DamagedInput(
            f"{path}: expected image ids that occur once, found {_first_twice(images)} twice; export it anew."
        )
    key = "annotations" if "annotations" in content else "annotation"
    entries = content.get(key, [])
    if not isinstance(entries, list):
        raise DamagedInput(f"{path}: expected a list '{key}', found {_kind(entries)}; export it anew.")
    annotations = tuple(_annotation(path, f"{key}[{i}]", entry, i, sizes) for i, entry in enumerate(entries))
    categories: dict[CocoId, str] = {}
    listed = content.get("categories") or []
    if not isinstance(listed, list):
        raise DamagedInput(f"{path}: expected a list 'categories', found {_kind(listed)}; export it anew.")
    for i, entry in enumerate(listed):
        where = f"categories[{i}]"
        categories[_id(path, where, entry, "id")] = str(_member(path, where, entry, "name"))
    info = content.get("info")
    return CocoFile(images, annotations, categories or {1: "polyp"}, info if isinstance(info, dict) else {})


def read_coco_results(path: str | Path, images: CocoFile) -> CocoFile:
    """Read a COCO result list (or a whole COCO file) of detections, for the images of a ground-truth file."""
    path = require_file(path, "COCO results file")
    content = _load(path)
    if isinstance(content, dict):
        key = "annotations" if "annotations" in content else "annotation"
        content = content.get(key)
    if not isinstance(content, list):
        raise DamagedInput(
            sentence(str(path), expected="a list of detections", found=_kind(content), hint="export COCO results anew")
        )
    sizes = {image.id: image for image in images.images}
    annotations = tuple(_annotation(path, f"[{i}]", entry, i, sizes) for i, entry in enumerate(content))
    return CocoFile(images.images, annotations, images.categories, images.info)


def write_coco(path: str | Path, coco: CocoFile) -> Path:
    """Write the standard COCO form, atomically. What `read_coco` reads back is equal to `coco`."""
    known = {image.id for image in coco.images}
    for annotation in coco.annotations:
        if annotation.image_id not in known:
            raise UsageError(
                f"annotation {annotation.id!r}: expected the id of an image, found {annotation.image_id!r}."
            )
    content = {
        "info": dict(coco.info),
        "images": [
            {"id": i.id, "file_name": i.file_name, "width": i.width, "height": i.height, **i.extra} for i in coco.images
        ],
        "annotations": [_annotation_json(annotation) for annotation in coco.annotations],
        "categories": [{"id": id_, "name": name} for id_, name in coco.categories.items()],
    }
    return write_text(path, json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")


def _annotation_json(annotation: CocoAnnotation) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": annotation.id,
        "image_id": annotation.image_id,
        "category_id": annotation.category_id,
        "iscrowd": int(annotation.is_crowd),
    }
    if annotation.box is not None:
        box = annotation.box
        out["bbox"] = [box.x, box.y, box.width, box.height]
    if isinstance(annotation.segmentation, RunLengths):
        code = annotation.segmentation
        out["segmentation"] = {"size": [code.height, code.width], "counts": code.to_string()}
    elif annotation.segmentation is not None:
        out["segmentation"] = [list(polygon) for polygon in annotation.segmentation]
    if annotation.area_px is not None:
        out["area"] = annotation.area_px
    if annotation.score is not None:
        out["score"] = annotation.score
    return out


def _load(path: Path) -> Any:
    try:
        # Null bytes and byte-order marks occur in files that passed through several systems.
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        at = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DamagedInput(
            f"{path}: expected a COCO JSON file, found text that is not JSON{at}; copy or export it again."
        ) from None


def _image(path: Path, where: str, entry: Any) -> CocoImage:
    id_ = _id(path, where, entry, "id")
    width, height = (_whole(path, f"{where}.{key}", _member(path, where, entry, key)) for key in ("width", "height"))
    if width < 1 or height < 1:
        raise DamagedInput(f"{path}: {where}: expected a size of at least 1×1, found {width}×{height}.")
    name = _member(path, where, entry, "file_name")
    if not isinstance(name, str) or not name:
        raise DamagedInput(f"{path}: {where}.file_name: expected a file name, found {name!r}.")
    extra = {key: value for key, value in entry.items() if key not in ("id", "width", "height", "file_name")}
    return CocoImage(id_, name, width, height, extra)


def _annotation(
    path: Path, where: str, entry: Any, position: int, images: Mapping[CocoId, CocoImage]
) -> CocoAnnotation:
    if not isinstance(entry, dict):
        raise DamagedInput(f"{path}: {where}: expected an object, found {_kind(entry)}.")
    id_ = _id(path, where, entry, "id") if "id" in entry else position + 1
    image_id = _id(path, where, entry, "image_id") if "image_id" in entry else id_
    image = images.get(image_id)
    if image is None:
        raise DamagedInput(f"{path}: {where}.image_id: expected the id of a listed image, found {image_id!r}.")
    box = None
    if entry.get("bbox"):
        x, y, width, height = _numbers(path, f"{where}.bbox", entry["bbox"], exactly=4)
        if width <= 0 or height <= 0:
            raise DamagedInput(f"{path}: {where}.bbox: expected [x, y, width, height] above 0, found {entry['bbox']}.")
        box = Box(x, y, width, height)
    score = entry.get("score")
    area = entry.get("area")
    return CocoAnnotation(
        id=id_,
        image_id=image_id,
        category_id=_id(path, where, entry, "category_id") if "category_id" in entry else 1,
        box=box,
        segmentation=_segmentation(path, f"{where}.segmentation", entry.get("segmentation"), image),
        score=None if score is None else _numbers(path, f"{where}.score", [score])[0],
        area_px=None if area is None else _numbers(path, f"{where}.area", [area])[0],
        is_crowd=bool(entry.get("iscrowd", 0)),
    )


def _segmentation(path: Path, where: str, value: Any, image: CocoImage) -> Polygons | RunLengths | None:
    if value is None or value == []:
        return None
    if isinstance(value, list):
        polygons = value if isinstance(value[0], list) else [value]
        out = tuple(tuple(_numbers(path, where, polygon)) for polygon in polygons)
        if any(len(polygon) < 6 or len(polygon) % 2 for polygon in out):
            raise DamagedInput(
                f"{path}: {where}: expected polygons of at least 3 points x, y, found fewer or an odd count."
            )
        return out
    if not isinstance(value, dict):
        raise DamagedInput(f"{path}: {where}: expected polygons or a run-length code, found {_kind(value)}.")
    size, counts = _member(path, where, value, "size"), _member(path, where, value, "counts")
    if size != [image.height, image.width]:
        raise DamagedInput(
            f"{path}: {where}.size: expected [{image.height}, {image.width}] like its image, found {size}."
        )
    check_pixels(image.width, image.height, f"{path}: {where}")
    try:
        if isinstance(counts, str):
            return RunLengths.from_string(counts, height=image.height, width=image.width)
        return RunLengths(image.height, image.width, tuple(_whole(path, where, count) for count in _list(counts)))
    except DamagedInput as error:
        raise DamagedInput(f"{path}: {where}: {error}") from None


def _list(value: Any) -> Iterable[Any]:
    if not isinstance(value, list):
        raise DamagedInput(f"expected counts as text or a list, found {_kind(value)}.")
    return value


def _member(path: Path, where: str, entry: Any, key: str) -> Any:
    if not isinstance(entry, dict) or key not in entry:
        found = f"only {', '.join(sorted(entry)) or 'nothing'}" if isinstance(entry, dict) else _kind(entry)
        raise DamagedInput(f"{path}: {where}: expected '{key}', found {found}; export it anew.")
    return entry[key]


def _id(path: Path, where: str, entry: Any, key: str) -> CocoId:
    value = _member(path, where, entry, key)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise DamagedInput(f"{path}: {where}.{key}: expected a whole number or text, found {value!r}.")
    return value


def _whole(path: Path, where: str, value: Any) -> int:
    if not _is_number(value) or int(value) != value:
        raise DamagedInput(f"{path}: {where}: expected a whole number, found {value!r}.")
    return int(value)


def _numbers(path: Path, where: str, values: Any, exactly: int | None = None) -> list[float]:
    count = "" if exactly is None else f"{exactly} "
    if not isinstance(values, list) or (exactly is not None and len(values) != exactly):
        raise DamagedInput(f"{path}: {where}: expected {count}numbers, found {values!r:.80}.")
    for value in values:
        if not _is_number(value):
            raise DamagedInput(f"{path}: {where}: expected {count}finite numbers, found {value!r:.80}.")
    return [float(value) for value in values]


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _first_twice(images: tuple[CocoImage, ...]) -> CocoId:
    seen: set[CocoId] = set()
    return next(image.id for image in images if image.id in seen or seen.add(image.id))  # type: ignore[func-returns-value]


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", type(None): "nothing", bool: "true or false"}
    return names.get(type(value), "a number")
