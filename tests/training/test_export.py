"""Export of a small model: parity, card, 16-bit storage, and the sentences for what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="exporting needs the train extra")
pytest.importorskip("onnx", reason="exporting needs the train extra")

from polypscope.api.export import export  # noqa: E402
from polypscope.models.depth_head import DepthHead  # noqa: E402
from polypscope.models.registry import create  # noqa: E402
from polypscope.records import Camera  # noqa: E402
from polypscope.records.errors import MissingInput, ModelError, UsageError  # noqa: E402
from polypscope.runtime.depth import DepthEstimator  # noqa: E402
from polypscope.runtime.segmenter import Segmenter  # noqa: E402
from polypscope.training.config import TrainConfig  # noqa: E402


def _checkpoint(folder: Path, name: str, **arguments: object) -> Path:
    config = TrainConfig.model_validate(
        {"out": folder, "train": [{"root": folder}], "model": {"name": name, "arguments": arguments}}
    )
    torch.manual_seed(0)
    model = create(name, **arguments)
    path = folder / f"{name}.pt"
    torch.save({"model": model.state_dict(), "config": config.model_dump_json()}, path)
    return path


def test_a_streaming_model_with_its_depth_head(tmp_path: Path) -> None:
    made = export(_checkpoint(tmp_path, "pns_plus_stream", encoder="lite0"), tmp_path / "s.onnx", size=64)
    assert made.parity < 1e-4
    assert made.exit_code == 0
    segmenter = Segmenter.load(made.file)
    assert segmenter.streaming
    assert segmenter.card.streaming
    torch.save({"depth": DepthHead().state_dict(), "channels": [24, 40, 96]}, tmp_path / "depth.pt")
    head = export(tmp_path / "depth.pt", tmp_path / "d.onnx", depth=made.file)
    assert head.parity < 1e-4
    ranger = DepthEstimator.load(segmenter, head.file)
    rgb = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    depth = ranger.depth(rgb, Camera.from_fov(70, 50, 120, "fisheye"))
    assert depth.shape == (50, 70)
    assert np.isfinite(depth.values).mean() > 0.9
    other = Segmenter.load()
    with pytest.raises(ModelError, match="expected the segmenter whose encoder it was trained on"):
        DepthEstimator.load(other, head.file)


def test_an_image_model_in_16_bits(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, "unet", width=8)
    full = export(checkpoint, tmp_path / "full.onnx", size=64)
    half = export(checkpoint, tmp_path / "half.onnx", size=64, half=True)
    assert half.file.stat().st_size < 0.65 * full.file.stat().st_size
    rgb = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    a, b = (Segmenter.load(made.file).predict(rgb).values for made in (full, half))
    assert np.abs(a - b).max() < 1e-2


def test_wrong_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="expected a checkpoint"):
        export(tmp_path / "absent.pt", tmp_path / "x.onnx")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ModelError, match="expected a checkpoint of `polypscope train`"):
        export(tmp_path / "text.pt", tmp_path / "x.onnx")
    with pytest.raises(UsageError, match="expected a multiple of 32 from 64 on, found 100"):
        export(_checkpoint(tmp_path, "unet", width=4), tmp_path / "x.onnx", size=100)
    with pytest.raises(ModelError, match=r"expected a `depth\.pt`"):
        export(
            tmp_path / "text.pt",
            tmp_path / "d.onnx",
            depth=export(_checkpoint(tmp_path, "unet", width=4), tmp_path / "u.onnx", size=64).file,
        )
