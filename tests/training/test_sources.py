"""Training pictures from every adapter and from folders: the frames of the data set's records, and clear refusals."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra")

from polypscope.api.simulate import simulate  # noqa: E402
from polypscope.datasets.registry import get_dataset  # noqa: E402
from polypscope.records.errors import MissingInput, UsageError  # noqa: E402
from polypscope.training.config import Source, TrainConfig, load_config  # noqa: E402
from polypscope.training.data import decoded  # noqa: E402
from polypscope.training.loop import gather, train  # noqa: E402
from polypscope.training.sources import list_clips, list_pictures  # noqa: E402
from polypscope.training.windows import list_windows  # noqa: E402

_spec = importlib.util.spec_from_file_location(
    "dataset_fixtures_training", Path(__file__).parent.parent / "datasets" / "fixtures.py"
)
assert _spec is not None
assert _spec.loader is not None
fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fixtures)


@pytest.mark.parametrize("name", fixtures.FIXTURES)
def test_an_adapter_gives_what_its_records_hold(name: str, tmp_path: Path) -> None:
    root = fixtures.FIXTURES[name][0](tmp_path)
    expected = [
        (sample.frame().rgb, truth.instances > 0)
        for case in get_dataset(name).cases(root)
        for clip in case.clips
        for sample in clip
        if (truth := sample.truth()) is not None and truth.instances is not None
    ]
    pictures = list_pictures(Source(root=root, adapter=name))
    assert len(pictures) == len(expected)
    assert len({picture.key for picture in pictures}) == len(expected)
    for picture, (rgb, polyp) in zip(pictures, expected, strict=True):
        np.testing.assert_array_equal(picture.rgb(), rgb)
        np.testing.assert_array_equal(picture.mask(), np.where(polyp, 255, 0))


def test_frames_without_polyp_are_taken_and_frames_without_label_are_counted(tmp_path: Path) -> None:
    said: list[str] = []
    shutil.rmtree(fixtures.asu_mayo(tmp_path) / "GT" / "wp_19")
    pictures = list_pictures(Source(root=tmp_path, adapter="asu-mayo"), said.append)
    empty = [picture for picture in pictures if not picture.mask().any()]
    assert len(pictures) == 8
    assert len(empty) == 6
    assert said == [f"asu-mayo in {tmp_path}: 4 frames without a label are left out"]


@pytest.mark.parametrize(
    ("name", "chosen", "count"),
    [
        ("polypgen", {"cases": ["C1"]}, 2),
        ("polypgen", {"cases": ["C1", "C3"]}, 4),
        ("cvc-clinicdb", {"cases": ["seq0*"]}, 5),
        ("cvc-clinicdb", {"cases": ["*2"]}, 2),
        ("train-test", {"splits": ["TestDataset"]}, 2),
        ("sun-seg", {"splits": ["Test*"]}, 6),
        ("sun-seg", {"splits": ["Negative"]}, 2),
    ],
)
def test_a_part_can_be_chosen(name: str, chosen: dict[str, Any], count: int, tmp_path: Path) -> None:
    root = fixtures.FIXTURES[name][0](tmp_path)
    pictures = list_pictures(Source.model_validate({"root": root, "adapter": name, **chosen}))
    assert len(pictures) == count


def test_names_can_be_excluded_or_chosen(tmp_path: Path) -> None:
    root = fixtures.stills(tmp_path / "data")
    (tmp_path / "held-out.txt").write_text("2.jpg\n")
    for entry, names in ((None, ["1", "2", "10"]), ("exclude", ["1", "10"]), ("only", ["2"])):
        lists = {} if entry is None else {entry: tmp_path / "held-out.txt"}
        source = Source.model_validate({"root": root, "adapter": "kvasir-seg", **lists})
        assert [picture.name for picture in list_pictures(source)] == names
    with pytest.raises(MissingInput, match=r"expected a text file .* nothing at .*absent\.txt"):
        list_pictures(Source(root=root, adapter="kvasir-seg", only=tmp_path / "absent.txt"))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({"adapter": "polypgn"}, "expected a known name, found 'polypgn'; did you mean polypgen"),
        ({"adapter": "polypgen", "cases": ["C1", "C6"]}, "expected a case 'C6', found C1, C3; correct `cases`"),
        ({"adapter": "polypgen", "splits": ["train"]}, "expected a split 'train', found none with a name"),
        ({"adapter": "sun-seg"}, r"expected TrainDataset/Frame, .* found none"),
    ],
)
def test_a_wrong_choice_is_named(source: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    root = fixtures.polypgen(tmp_path)
    with pytest.raises((MissingInput, UsageError), match=sentence):
        list_pictures(Source.model_validate({"root": root, **source}))


def test_a_data_set_without_masks_is_refused(tmp_path: Path) -> None:
    root = fixtures.asu_mayo(tmp_path)
    shutil.rmtree(root / "GT" / "wp_19")
    with pytest.raises(MissingInput, match="expected frames with masks, found 4 frames without any"):
        list_pictures(Source(root=root, adapter="asu-mayo", cases=("wp_19",)))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("cases = ['C1']", "expected `adapter` beside `cases` or `splits`"),
        ("adapter = 'sun-seg'\nlayout = 'sun-seg'", "expected `adapter` or `layout`, not both"),
        ("adaptor = 'polypgen'", "adaptor: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_table_is_named(table: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(f"out = 'x'\n[[train]]\nroot = 'y'\n{table}\n")
    with pytest.raises(UsageError, match=sentence):
        load_config(tmp_path / "recipe.toml")


def test_clips_break_where_a_label_is_missing(tmp_path: Path) -> None:
    root = fixtures.polypsense3d(tmp_path)
    assert [len(clip) for clip in list_clips(Source(root=root, adapter="polypsense3d"))] == [3, 3]
    source = Source(root=root, adapter="polypsense3d")
    assert len(list_windows(source, 2)) == 4
    first = sorted(root.glob("*/masks"))[0]
    sorted(first.glob("*"))[1].unlink()
    assert [len(clip) for clip in list_clips(source)] == [1, 1, 3]
    with pytest.raises(MissingInput, match="expected clips of at least 2 frames"):
        list_windows(Source(root=fixtures.stills(tmp_path / "stills"), adapter="kvasir-seg"), 2)


def test_pairs_keep_the_name_of_their_cache(tmp_path: Path) -> None:
    root = fixtures.stills(tmp_path / "data")
    pictures, _ = gather([Source(root=root)])
    decoded(pictures, 16, tmp_path / "cache")
    # Written out, since existing caches of decoded pictures are found by this rule alone.
    files = [f"{root}/images/{stem}.jpg|{root}/masks/{stem}.png" for stem in ("1", "10", "2")]
    key = hashlib.sha256(("\n".join(files) + "16").encode()).hexdigest()[:16]
    assert (tmp_path / "cache" / f"{key}.masks.npy").is_file()


def test_simulated_sequences_and_a_weighted_mix_train_a_network(tmp_path: Path) -> None:
    simulate(tmp_path / "simulated", frames=3, sequences=1, size="64x64", seed=3)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        """
out = "run"
cache_side_px = 32
sizes = [32]
validate_size = 32
workers = 0
threads = 1
length = 8
[model]
name = "unet"
arguments = { width = 4 }
imagenet = false
[optimiser]
epochs = 1
batch = 4
precision = "float32"
[[train]]
adapter = "polypsense3d"
root = "simulated"
weight = 3.0
[[train]]
adapter = "polypgen"
root = "polypgen"
cases = ["C1"]
[[validate_on]]
adapter = "polypgen"
root = "polypgen"
cases = ["C3"]
name = "C3"
""",
        encoding="utf-8",
    )
    fixtures.polypgen(tmp_path / "polypgen")
    config = load_config(recipe)
    pictures, weights = gather(config.train)
    assert weights.tolist() == [3.0, 3.0, 3.0, 1.0, 1.0]
    assert pictures[0].rgb().shape == (64, 64, 3)
    assert torch.load(train(config, say=lambda text: None), weights_only=True)["model"]
    assert "dice C3" in (tmp_path / "run" / "log.csv").read_text()


def test_what_is_missing_for_validation_is_said_before_training(tmp_path: Path) -> None:
    root = fixtures.stills(tmp_path / "data")
    config = TrainConfig.model_validate(
        {
            "out": tmp_path / "run",
            "cache_side_px": 32,
            "model": {"name": "unet", "arguments": {"width": 4}, "imagenet": False},
            "train": [{"root": root}],
            "validate_on": [{"root": root, "adapter": "nowhere"}],
        }
    )
    with pytest.raises(UsageError, match="expected a known name, found 'nowhere'"):
        train(config, say=lambda text: None)
    assert not (tmp_path / "run" / "log.csv").exists()


def test_the_adapters_read_the_real_data(shared: Path) -> None:
    data = shared / "data"
    held_out = data / "splits" / "kvasir_pranet_test.txt"
    sources = [
        Source(root=data / "polypgen", adapter="polypgen", cases=("C1", "C2", "C3", "C4", "C5")),
        Source(root=data / "kvasir-seg", adapter="kvasir-seg", exclude=held_out, weight=0.5),
    ]
    pictures, weights = gather(sources)
    by_folder, _ = gather(
        [Source(root=data / "polypgen" / f"C{n}") for n in range(1, 6)]
        + [Source(root=data / "kvasir-seg", exclude=held_out)]
    )
    assert len(pictures) == len(by_folder) == 2349
    assert weights.sum() == 1449 + 450
    assert sorted(picture.name for picture in pictures) == sorted(picture.name for picture in by_folder)
    same = {picture.name: picture for picture in by_folder}
    for picture in pictures[::400]:
        np.testing.assert_array_equal(picture.rgb(), same[picture.name].rgb())
        assert np.mean(picture.mask() != same[picture.name].mask()) < 0.01  # grey 128 is polyp by one rule only
    negatives = list_pictures(Source(root=data / "polypgen", adapter="polypgen", cases=("C6",)))
    assert any(not picture.mask().any() for picture in negatives)
