"""Training on pictures drawn here: it learns eight of them, resumes exactly, and says what is wrong with a recipe."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from discs import draw_pairs

torch = pytest.importorskip("torch", reason="training needs the train extra")

from polypscope.records.errors import MissingInput, UsageError  # noqa: E402
from polypscope.training.config import DepthConfig, TrainConfig, load_config, load_recipe  # noqa: E402
from polypscope.training.loop import train  # noqa: E402
from polypscope.training.windows import list_windows  # noqa: E402


def _recipe(tmp_path: Path, out: str, **changes: object) -> TrainConfig:
    if not (tmp_path / "data").exists():
        draw_pairs(tmp_path / "data", 8)
    still = {"scale": (1.0, 1.0), "rotate_deg": 0, "aspect": 0, "shift": 0, "colour": 0, "degrade": 0}
    still |= {"highlights": 0, "overlay": 0, "field_of_view": 0, "paste": 0}
    fields = {
        "out": tmp_path / out,
        "cache": tmp_path / "cache",
        "cache_side_px": 32,
        "sizes": (32,),
        "validate_size": 32,
        "workers": 0,
        "threads": 1,
        "model": {"name": "unet", "arguments": {"width": 8}, "imagenet": False},
        "optimiser": {"epochs": 2, "batch": 4, "rate": 3e-3, "ema": 0.5, "precision": "float32", "warm_up": 0.0},
        "augment": still,
        "train": [{"root": tmp_path / "data"}],
        "validate_on": [{"root": tmp_path / "data", "name": "same"}],
    }
    return TrainConfig.model_validate(fields | changes)


def test_it_overfits_eight_pictures(tmp_path: Path) -> None:
    optimiser = {"epochs": 16, "batch": 2, "rate": 5e-3, "ema": 0.5, "precision": "float32"}
    train(_recipe(tmp_path, "run", optimiser=optimiser), say=lambda text: None)
    rows = list(csv.DictReader((tmp_path / "run" / "log.csv").read_text().splitlines()))
    assert len(rows) == 16
    assert float(rows[-1]["dice same"]) > 0.9
    assert float(rows[-1]["loss"]) < 0.6 * float(rows[0]["loss"])
    assert (tmp_path / "run" / "predictions-015.png").is_file()


def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    augmented = {"paste": 0.5}
    whole = _recipe(tmp_path, "whole", augment=augmented)
    straight = torch.load(train(whole, say=lambda text: None), weights_only=True)["model"]

    class Stopped(Exception):
        pass

    def stop_in_epoch_1(text: str) -> None:
        if text.startswith("epoch 1 batch"):
            raise Stopped

    parts = _recipe(tmp_path, "parts", augment=augmented)
    with pytest.raises(Stopped):
        train(parts, say=stop_in_epoch_1)
    said: list[str] = []
    resumed = torch.load(train(parts, say=said.append), weights_only=True)["model"]
    assert said[0] == "resuming after epoch 0"
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("out = 'x'\n", r"train: Field required"),
        ("out = 'x'\nepochs = 3\n[[train]]\nroot = 'y'\n", "epochs: Extra inputs are not permitted"),
        ("out = \n", "expected TOML, found a mistake"),
        ('kind = ["depth"]\nout = "runs"\n', "kind: Input should be 'images'"),
        ("out = 'x'\n[optimiser]\nschedule = 'triangle'\n[[train]]\nroot = 'y'\n", "optimiser.schedule"),
    ],
)
def test_a_wrong_recipe_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(UsageError, match=sentence):
        load_config(tmp_path / "recipe.toml")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match=r"absent\.toml"):
        load_config(tmp_path / "absent.toml")
    recipe = _recipe(tmp_path, "run", train=[{"root": tmp_path / "nowhere"}])
    with pytest.raises(MissingInput, match="expected pictures in"):
        train(recipe)
    (tmp_path / "data" / "masks" / "3.png").unlink()
    with pytest.raises(MissingInput, match=r"expected a mask for .*3\.png"):
        train(_recipe(tmp_path, "run2"))


def test_the_shipped_recipes_are_valid() -> None:
    folder = Path(__file__).parents[2] / "recipes"
    recipes = [path for path in folder.glob("*.toml") if not path.name.endswith(".card.toml")]
    assert recipes
    for path in recipes:
        recipe = load_recipe(path)
        assert recipe.simulated if isinstance(recipe, DepthConfig) else recipe.train


def test_windows_train_a_network_that_takes_clips(tmp_path: Path) -> None:
    for clip in ("case1", "case2"):
        draw_pairs(tmp_path / clip, 4)
        for ours, theirs in (("images", "Frame"), ("masks", "GT")):
            target = tmp_path / "sun" / theirs / clip
            target.parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / clip / ours).rename(target)
    recipe = _recipe(
        tmp_path,
        "run",
        train=[{"root": tmp_path / "sun", "layout": "sun-seg"}],
        window=2,
        window_size=(64, 64),
        validate_on=[],
        model={"name": "pns_plus", "imagenet": False, "arguments": {"norm_size": None}},
        optimiser={"epochs": 1, "batch": 3, "loss": "bce", "clamp": 0.5, "algorithm": "adam", "precision": "float32"},
    )
    windows = list_windows(recipe.train[0], 2)
    assert len(windows) == 6
    assert [picture.name for picture in windows[-1].pictures] == ["0", "2", "3"]
    weights = torch.load(train(recipe, say=lambda text: None), weights_only=True)
    assert "blocks.0.query.weight" in weights["model"]
    with pytest.raises(UsageError, match="expected `window` for a network that takes clips only"):
        train(_recipe(tmp_path, "other", window=2, train=recipe.train))
