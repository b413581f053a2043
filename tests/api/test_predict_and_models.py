"""Predict and models through the API, with the weights that ship."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from polypscope.api.models import info, list_models
from polypscope.api.predict import predict
from polypscope.cli import run
from polypscope.io.images import write_image
from polypscope.io.video_writer import VideoWriter
from polypscope.pipeline.models import load_models
from polypscope.records import Camera, Frame
from polypscope.records.errors import InputError, MissingInput, ModelError, RecordError, UsageError
from polypscope.runtime.cards import list_cards
from polypscope.runtime.segmenter import DEFAULT_SEGMENTER, DEFAULT_STILLS, Segmenter


def _picture(path: Path, shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    small = rng.integers(60, 200, (6, 6, 3)).astype(np.uint8)
    picture = cv2.resize(small, shape[::-1], interpolation=cv2.INTER_CUBIC)
    cv2.imwrite(str(path), picture)
    return picture[..., ::-1].copy()


def test_folders_names_and_sizes_are_kept(tmp_path: Path) -> None:
    shapes = {"a/1.png": (60, 80), "a/b/2.jpg": (90, 70), "3.bmp": (64, 64)}
    for seed, (name, shape) in enumerate(shapes.items()):
        _picture(tmp_path / "in" / name, shape, seed)
    (tmp_path / "in" / ".DS_Store").write_bytes(b"x")
    (tmp_path / "in" / "a" / "broken.png").write_text("not a picture")
    result = predict(tmp_path / "in", tmp_path / "out")
    assert result.pictures == 3
    assert result.exit_code == 1
    assert "broken.png" in result.failures[0]
    for name, shape in shapes.items():
        found = cv2.imread(str((tmp_path / "out" / name).with_suffix(".png")), cv2.IMREAD_UNCHANGED)
        assert found.shape == shape
        assert found.dtype == np.uint8
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["status"] == "done"
    assert record["pictures"] == 3


def test_a_clip_is_a_stream_and_stills_are_not(tmp_path: Path) -> None:
    for index in range(3):
        _picture(tmp_path / "in" / f"{index}.png", (64, 64), index)
    predict(tmp_path / "in", tmp_path / "stills", fast=True)
    predict(tmp_path / "in", tmp_path / "careful")
    predict(tmp_path / "in", tmp_path / "clip", clip=True)
    used = {name: json.loads((tmp_path / name / "run.json").read_text())["arguments"]["model"]
            for name in ("stills", "careful", "clip")}  # fmt: skip
    assert used == {"stills": DEFAULT_SEGMENTER, "careful": DEFAULT_STILLS, "clip": DEFAULT_SEGMENTER}
    segmenter, slow = Segmenter.load(), Segmenter.load(DEFAULT_STILLS)
    for index in range(3):
        rgb = cv2.imread(str(tmp_path / "in" / f"{index}.png"))[..., ::-1].copy()
        looks = {
            "stills": segmenter.predict(rgb),
            "careful": slow.predict(rgb, careful=True),
            "clip": segmenter.step(rgb),
        }
        for folder, probability in looks.items():
            found = cv2.imread(str(tmp_path / folder / f"{index}.png"), cv2.IMREAD_GRAYSCALE)
            assert np.abs(found / 255 - probability.values).max() < 0.5 / 255 + 1e-4


def test_pictures_and_videos_in_one_folder_have_a_model_each(tmp_path: Path) -> None:
    picture = _picture(tmp_path / "in" / "still.png", (64, 64), 0)
    with VideoWriter(tmp_path / "in" / "clip.mp4") as writer:
        for index in range(2):
            writer.write(Frame(index, index / 25, picture))
    predict(tmp_path / "in", tmp_path / "both")
    record = json.loads((tmp_path / "both" / "run.json").read_text())
    assert record["arguments"]["model"] == f"{DEFAULT_SEGMENTER}, {DEFAULT_STILLS}"
    assert sorted(path.relative_to(tmp_path / "both").as_posix() for path in (tmp_path / "both").rglob("*.png")) == [
        "clip/000000.png", "clip/000001.png", "still.png",
    ]  # fmt: skip
    found = cv2.imread(str(tmp_path / "both" / "still.png"), cv2.IMREAD_GRAYSCALE) / 255
    expected = Segmenter.load(DEFAULT_STILLS).predict(picture, careful=True).values
    assert np.abs(found - expected).max() < 0.5 / 255 + 1e-4
    for name, options in (("one", {"model": DEFAULT_SEGMENTER}), ("fast", {"fast": True})):
        predict(tmp_path / "in", tmp_path / name, **options)
        assert json.loads((tmp_path / name / "run.json").read_text())["arguments"]["model"] == DEFAULT_SEGMENTER


def test_wrong_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="expected a picture, a video or a folder"):
        predict(tmp_path / "absent", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="expected pictures or videos in this folder, found none"):
        predict(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(ModelError, match="found 'nonesuch'"):
        predict(tmp_path / "empty", tmp_path / "out", model="nonesuch")


def test_no_map_takes_the_place_of_a_picture_or_of_another_map(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    first = write_image(tmp_path / "case" / "a.png", pixels)
    before = first.read_bytes()
    with pytest.raises(UsageError, match=r"expected a folder apart from the input, found .*a\.png in it"):
        predict(tmp_path / "case", tmp_path / "case", fast=True)
    with pytest.raises(UsageError, match="expected a folder apart from the input"):
        predict(first, first.parent, fast=True)
    assert first.read_bytes() == before
    # Inside the input is fine, again and again: maps of the first run are no pictures of the second.
    for _ in range(2):
        assert predict(tmp_path / "case", tmp_path / "case" / "maps", fast=True).pictures == 1
    assert [path.name for path in (tmp_path / "case" / "maps").rglob("*.png")] == ["a.png"]
    write_image(tmp_path / "case" / "a.jpg", pixels)
    with pytest.raises(UsageError, match="expected one picture of this name, found a"):
        predict(tmp_path / "case", tmp_path / "out", fast=True)


def test_cards_of_shipped_models_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    cards = list_models().cards
    assert DEFAULT_SEGMENTER in {card.name for card in cards}
    for card in cards:
        assert card.check_file().stat().st_size == card.bytes
        assert card.data
        assert all(item.licence for item in card.data)
        assert card.fails_on
        assert info(card.name).card == card
    shown = capsys.readouterr().out
    assert "Research software, not a medical device." in shown
    assert "CC BY 4.0" in shown
    assert f"runs unless --model names another: {DEFAULT_SEGMENTER}." in " ".join(shown.split())
    assert f"looks at single pictures with {DEFAULT_STILLS}" in " ".join(shown.split())


@pytest.mark.parametrize("name", [None, "polypscope-segmenter"])
def test_the_shipped_depth_head_goes_with_both_forms_of_the_segmenter(name: str | None) -> None:
    assert load_models(name).ranger is not None
    assert load_models("polypscope-segmenter-simulated").ranger is None


def test_models_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "info", "nonesuch"]) == 1
    assert "Error: Model: expected one of" in capsys.readouterr().err


@pytest.mark.skipif("polypscope-depth" not in {card.name for card in list_cards()}, reason="no depth head ships")
def test_depth_shares_the_features_of_the_frame() -> None:
    from polypscope.runtime.depth import DepthEstimator

    segmenter = Segmenter.load()
    ranger = DepthEstimator.load(segmenter)
    rgb = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    camera = Camera.from_fov(128, 96, 100)
    alone = ranger.depth(rgb.copy(), camera)
    segmenter.step(rgb)
    shared = ranger.depth(rgb, camera)
    assert shared.shape == (96, 128)
    assert shared.sigma is not None
    assert np.nanmax(np.abs(alone.values - shared.values)) < 1e-2
    with pytest.raises(RecordError, match="expected the frame's size 128×96"):
        ranger.depth(rgb, camera.resized(64, 48))
