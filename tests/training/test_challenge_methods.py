"""The networks of the MICCAI 2015 challenge on the one path: train, export, predict, evaluate detection."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from discs import draw_pairs

torch = pytest.importorskip("torch", reason="training needs the train extra")
pytest.importorskip("onnx", reason="exporting needs the train extra")

from polypscope.api.evaluate_detection import detection  # noqa: E402
from polypscope.api.export import export  # noqa: E402
from polypscope.api.predict import predict  # noqa: E402
from polypscope.training.config import TrainConfig  # noqa: E402
from polypscope.training.loop import train  # noqa: E402

SIDE = 64
METHODS: dict[str, dict[str, Any]] = {
    "cumed": {"arguments": {"width": 4, "features": 8}},
    "ous": {"arguments": {"width": 0.05, "scales": (1.0, 0.5)}},
    "snu": {
        "arguments": {"width": 0.1, "size": SIDE},
        "optimiser": {"loss": "presence"},
        "augment": {"empty": 0.5},
        "locates": False,  # whether is learnt here; where takes a classifier that has seen more than eight pictures
    },
    "uns_uclan": {"arguments": {"width": 8, "hidden": 32}, "point": "peak"},
}
STILL = {"scale": (1.0, 1.0), "rotate_deg": 0, "aspect": 0, "shift": 0, "colour": 0, "degrade": 0}
STILL |= {"highlights": 0, "overlay": 0, "field_of_view": 0, "paste": 0}


@pytest.mark.parametrize("name", METHODS)
def test_from_pictures_to_counts(name: str, tmp_path: Path) -> None:
    method = METHODS[name]
    draw_pairs(tmp_path / "data", 8, SIDE)
    recipe = TrainConfig.model_validate(
        {
            "out": tmp_path / "run",
            "cache_side_px": SIDE,
            "sizes": (SIDE,),
            "validate_size": SIDE,
            "workers": 0,
            "threads": 1,
            "model": {"name": name, "arguments": method["arguments"], "imagenet": False},
            "optimiser": {
                "epochs": 16,
                "batch": 2,
                "rate": 5e-3,
                "encoder_rate": 1.0,
                "ema": 0.5,
                "precision": "float32",
            }
            | method.get("optimiser", {}),
            "augment": STILL | method.get("augment", {}),
            "train": [{"root": tmp_path / "data"}],
        }
    )
    weights = train(recipe, say=lambda text: None)
    losses = [float(row["loss"]) for row in csv.DictReader((tmp_path / "run" / "log.csv").read_text().splitlines())]
    assert losses[-1] < 0.75 * losses[0]
    made = export(weights, tmp_path / f"{name}.onnx", size=SIDE)
    assert made.parity < 1e-4
    predict(tmp_path / "data" / "images", tmp_path / "maps", model=str(made.file), fast=True, threads=1)
    report = detection(
        tmp_path / "data" / "masks",
        f"{name}={tmp_path / 'maps'}",
        out=tmp_path / "study",
        map_point=method.get("point", "centroid"),
        replicates=10,
        jobs=1,
    )
    if method.get("locates", True):
        assert report.result.methods[0].counts.tp.sum() >= 6, "most discs of the training pictures are found"
