"""Every data set through one test each: it loads lazily, passes its own check, converts, and refuses a wrong folder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from polypscope.datasets.registry import DATASETS, get_dataset
from polypscope.io.coco import read_coco
from polypscope.records.errors import PolypscopeError, UsageError

_spec = importlib.util.spec_from_file_location(
    "dataset_fixtures", Path(__file__).parent.parent / "datasets" / "fixtures.py"
)
assert _spec is not None
assert _spec.loader is not None
fixtures = importlib.util.module_from_spec(_spec)
sys.modules["dataset_fixtures"] = fixtures
_spec.loader.exec_module(fixtures)
FIXTURES = fixtures.FIXTURES


def test_every_data_set_has_a_fixture() -> None:
    assert set(FIXTURES) == set(DATASETS)


@pytest.mark.parametrize("name", DATASETS)
def test_card_is_complete(name: str) -> None:
    card = DATASETS[name].card
    assert card.title
    assert card.licence
    assert card.obtain
    assert card.layout.startswith("ROOT")


@pytest.mark.parametrize("name", DATASETS)
def test_loads_checks_and_converts(name: str, tmp_path: Path) -> None:
    maker, cases, clips, frames, polyp_frames = FIXTURES[name]
    root = maker(tmp_path / "data")
    dataset = get_dataset(name)
    loaded = list(dataset.cases(root))
    assert len(loaded) == cases
    assert sum(len(case.clips) for case in loaded) == clips
    seen = 0
    for case in loaded:
        for clip in case.clips:
            stamps = []
            for index, sample in enumerate(clip):
                frame, truth = sample.frame(), sample.truth()
                assert frame.index == index
                assert truth is not None
                assert truth.index == index
                assert truth.shape == frame.shape
                assert truth.pts_s == pytest.approx(frame.pts_s)
                stamps.append(frame.pts_s)
                seen += truth.has_polyp
            assert stamps == sorted(set(stamps))
    assert seen == polyp_frames

    report = dataset.check(root)
    assert report.problems == ()
    assert (report.cases, report.clips, report.frames, report.polyp_frames) == (cases, clips, frames, polyp_frames)

    from polypscope.api.datasets import convert

    done = convert(name, root, tmp_path / "out")
    assert done.frames == frames
    again = get_dataset("folder").check(tmp_path / "out")
    assert again.problems == ()
    assert (again.frames, again.polyp_frames) == (frames, polyp_frames)
    coco = read_coco(tmp_path / "out" / "annotations.json")
    assert len(coco.images) == frames
    assert sum(bool(found) for found in coco.by_image().values()) == polyp_frames
    assert (tmp_path / "out" / "run.json").is_file()


@pytest.mark.parametrize("name", DATASETS)
def test_a_wrong_folder_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(PolypscopeError, match="expected"):
        DATASETS[name].check(tmp_path)
    with pytest.raises(PolypscopeError, match="found nothing there"):
        list(DATASETS[name].cases(tmp_path / "no"))


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean kvasir-seg"):
        get_dataset("kvasirseg")
    with pytest.raises(UsageError, match="known are sun-seg"):
        get_dataset("xyz")
