from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from polypscope.io.coco import CocoAnnotation, CocoFile, CocoImage, read_coco, read_coco_results, write_coco
from polypscope.io.rle import RunLengths
from polypscope.records import Box
from polypscope.records.errors import DamagedInput, InputError, UnsafeInput


def _mask() -> np.ndarray:
    mask = np.zeros((30, 40), dtype=bool)
    mask[5:20, 7:31] = True
    return mask


def _coco() -> CocoFile:
    images = (
        CocoImage(1, "a/1.jpg", 40, 30, {"case_name": "case1"}),
        CocoImage("two", "a/2.jpg", 40, 30),
        CocoImage(3, "negative.jpg", 40, 30),
    )
    annotations = (
        CocoAnnotation(1, 1, 1, Box(7, 5, 24, 15), RunLengths.from_mask(_mask()), area_px=360.0),
        CocoAnnotation(2, "two", 1, Box(0.5, 1.25, 3, 4), ((0.0, 0.0, 5.0, 0.0, 5.0, 5.0),), score=0.75, is_crowd=True),
    )
    return CocoFile(images, annotations, {1: "polyp"}, {"description": "tést"})


def test_round_trip_is_equal(tmp_path: Path) -> None:
    path = write_coco(tmp_path / "a.json", _coco())
    assert read_coco(path) == _coco()
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_masks_and_negatives(tmp_path: Path) -> None:
    coco = read_coco(write_coco(tmp_path / "a.json", _coco()))
    mask = coco.annotations[0].mask(coco.images[0])
    assert mask is not None
    assert (mask.values == _mask()).all()
    assert {key: len(value) for key, value in coco.by_image().items()} == {1: 1, "two": 1, 3: 0}


def test_sun_seg_dialect(tmp_path: Path) -> None:
    content = {
        "info": {},
        "images": [{"id": "case1_1-a2-image0001", "width": 1158, "height": 1008, "case_name": "c", "file_name": "f"}],
        "annotation": [{"id": "case1_1-a2-image0001", "bbox": [262, 72, 68, 81]}],
    }
    path = tmp_path / "bbox_annotation.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    coco = read_coco(path)
    assert coco.annotations[0].image_id == "case1_1-a2-image0001"
    assert coco.annotations[0].box == Box(262, 72, 68, 81)


def test_results_list(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(
        json.dumps([{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}]), encoding="utf-8"
    )
    found = read_coco_results(path, _coco())
    assert [(a.image_id, a.box, a.score) for a in found.annotations] == [(1, Box(1, 2, 3, 4), 0.5)]
    with pytest.raises(InputError, match="found a list, as of detection results"):
        read_coco(path)


_IMAGE = {"id": 1, "file_name": "1.png", "width": 4, "height": 2}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON at line 1, column 2"),
        ("[" * 100000, "not JSON"),
        ("{}", "a list 'images'"),
        ("3", "found a number"),
        ({"images": [{"id": 1}]}, r"images\[0\]: expected 'width'"),
        ({"images": [3]}, r"images\[0\]: expected 'id', found a number"),
        ({"images": [_IMAGE, _IMAGE]}, "found 1 twice"),
        ({"images": [{**_IMAGE, "width": float("inf")}]}, r"images\[0\]\.width: expected a whole number"),
        ({"images": [{**_IMAGE, "width": 10**400}]}, r"images\[0\]\.width: expected a whole number"),
        ({"images": [_IMAGE], "annotations": {}}, "a list 'annotations', found an object"),
        ({"images": [_IMAGE], "categories": 4}, "a list 'categories', found a number"),
        ({"images": [_IMAGE], "annotations": [{"id": 1, "image_id": 9}]}, r"annotations\[0\]\.image_id: .* found 9"),
        ({"images": [_IMAGE], "annotations": [{"id": 1, "bbox": [1, 2]}]}, r"bbox: expected 4 numbers"),
        (
            {"images": [_IMAGE], "annotations": [{"id": 1, "bbox": [1, 2, float("nan"), 2]}]},
            "finite numbers, found nan",
        ),
        ({"images": [_IMAGE], "annotations": [{"id": 1, "bbox": [1, 2, -3, 2]}]}, "above 0"),
        ({"images": [_IMAGE], "annotations": [{"id": 1, "segmentation": [[1, 2, 3]]}]}, "at least 3 points"),
        (
            {"images": [_IMAGE], "annotations": [{"id": 1, "segmentation": {"size": [2, 4], "counts": [9]}}]},
            r"annotations\[0\]\.segmentation: .* add up to 2×4 = 8 pixels, found 9",
        ),
        (
            {"images": [_IMAGE], "annotations": [{"id": 1, "segmentation": {"size": [9, 4], "counts": "z"}}]},
            r"size: expected \[2, 4\] like its image",
        ),
        (
            {"images": [_IMAGE], "annotations": [{"id": 1, "segmentation": {"size": [2, 4], "counts": 5}}]},
            "as text or a list",
        ),
    ],
)
def test_faults_name_file_and_entry(tmp_path: Path, content: object, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(DamagedInput, match=words) as caught:
        read_coco(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("name", ["../x.png", "/etc/passwd", "a/../../x", "C:\\x.png", "..\\x.png", "a\0b"])
def test_names_that_leave_the_root_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeInput, match="leaves it"):
        CocoImage(1, name, 4, 4).path_in(tmp_path)


def test_bomb_is_refused_before_a_mask_is_made() -> None:
    image = CocoImage(1, "a.png", 10**6, 10**6)
    with pytest.raises(UnsafeInput, match="POLYPSCOPE_MAX_PIXELS"):
        CocoAnnotation(1, 1, 1, segmentation=((0.0, 0.0, 9.0, 0.0, 9.0, 9.0),)).mask(image)
