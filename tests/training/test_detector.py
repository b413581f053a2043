"""Training a method of the challenge from a recipe, and running what came out; no torch is involved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scenes_of_mucosa import bright_disk, mucosa

from polypscope.api.detect import detect
from polypscope.api.train import train
from polypscope.io.detections_csv import read_detections_csv
from polypscope.io.images import read_rgb, write_image
from polypscope.methods.global_features import jcd
from polypscope.methods.pls import Pls
from polypscope.methods.registry import METHODS
from polypscope.records.errors import InputError, UsageError

LEARNERS = [name for name, entry in METHODS.items() if entry.trains]


def _pairs(root: Path, count: int) -> None:
    """Grainy bright disks on mucosa, and as many pictures without."""
    y, x = np.mgrid[:120, :150]
    for seed in range(count):
        mask = np.hypot(x - 60 - seed, y - 60) < 24
        grain = np.random.default_rng(seed).normal(0, 15, (120, 150, 1)) * mask[..., None]
        rgb = np.clip(bright_disk(150, 120, (60 + seed, 60), 24, seed=seed) + grain, 0, 255).astype(np.uint8)
        write_image(root / "images" / f"p{seed}.png", rgb)
        write_image(root / "masks" / f"p{seed}.png", mask.astype(np.uint8) * np.uint8(255))
        rough = mucosa(150, 120, seed=70 + seed, shade=1 + 0.2 * np.sin(x / 9).astype(np.float32))
        write_image(root / "images" / f"q{seed}.png", rough)
        write_image(root / "masks" / f"q{seed}.png", np.zeros((120, 150), np.uint8))


def _recipe(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(f'kind = "detector"\nout = "run"\n{text}\n[[train]]\nroot = "data"\n')
    return path


def test_maps_of_a_method_without_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    _pairs(tmp_path / "data", 4)
    trained = train(_recipe(tmp_path, 'method = "etis-larib"')).weights
    (tmp_path / "o.csv").write_text("earlier results")
    with pytest.raises(UsageError, match="expected a method with an energy map, found etis-larib"):
        detect(tmp_path / "data", tmp_path / "o.csv", method="etis-larib", trained=trained, maps=tmp_path / "maps")
    assert (tmp_path / "o.csv").read_text() == "earlier results"


@pytest.mark.parametrize("method", LEARNERS)
def test_from_recipe_to_detections(method: str, tmp_path: Path) -> None:
    _pairs(tmp_path / "data", 8)
    result = train(_recipe(tmp_path, f'method = "{method}"'))
    assert result.weights == tmp_path / "run" / f"{method}.npz"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "done"
    out = tmp_path / "out" / "found.csv"
    found = detect(tmp_path / "data", out, method=method, trained=result.weights, most=1)
    assert found.frames == 16
    rows = read_detections_csv(out).rows
    near = [row for row in rows if str(row.frame).startswith("p") and np.hypot(row.x - 64, row.y - 60) < 24]
    assert len(near) >= 6
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert list(record["inputs"]) == [f"{method}.npz"]


def test_every_so_many_th_picture_of_each_source_is_learned_from(tmp_path: Path) -> None:
    for source in ("data", "more"):
        _pairs(tmp_path / source, 4)
        for path in (tmp_path / source / "masks").iterdir():  # a dark grey is no polyp
            write_image(path, np.full((120, 150), 200 if path.name.startswith("p") else 100, np.uint8))
    recipe = _recipe(tmp_path, 'method = "pls"\nevery = 3')
    recipe.write_text(recipe.read_text() + '[[train]]\nroot = "more"\n')
    learned = Pls.load(train(recipe).weights)
    assert learned.polyp.tolist() == [True, True, False] * 2  # p0, p3 and q2 of each
    assert np.allclose(learned.jcds[0], jcd(read_rgb(tmp_path / "data" / "images" / "p0.png")), atol=1e-6)
    assert np.allclose(learned.jcds[5], jcd(read_rgb(tmp_path / "more" / "images" / "q2.png")), atol=1e-6)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    _pairs(tmp_path / "data", 1)
    with pytest.raises(UsageError, match=r"expected a known method, found 'cvc-clinic'"):
        train(_recipe(tmp_path, 'method = "cvc-clinic"'))  # it learns nothing
    with pytest.raises(UsageError, match="--epochs"):
        train(_recipe(tmp_path, f'method = "{LEARNERS[0]}"'), epochs=3)
    with pytest.raises(UsageError, match="every"):
        train(_recipe(tmp_path, f'method = "{LEARNERS[0]}"\nevery = 0'))
    with pytest.raises(InputError, match="training: expected"):
        train(_recipe(tmp_path, f'method = "{LEARNERS[0]}"'))
    with pytest.raises(UsageError, match="expected a trained file"):
        detect(tmp_path / "data", tmp_path / "o.csv", method=LEARNERS[0])
    with pytest.raises(UsageError, match="which does not"):
        detect(tmp_path / "data", tmp_path / "o.csv", trained=tmp_path / "x.npz")


def test_no_torch_is_needed() -> None:
    code = (
        "import sys; sys.modules['torch'] = None;"
        "import polypscope.training.detector, polypscope.methods.etis_larib; print('fine')"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "fine\n"
