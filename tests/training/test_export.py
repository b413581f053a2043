"""Export of a small model: parity, card, 16-bit storage, and the sentences for what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="exporting needs the train extra")
onnx = pytest.importorskip("onnx", reason="exporting needs the train extra")

from polypscope.api.export import export  # noqa: E402
from polypscope.io.images import write_image  # noqa: E402
from polypscope.models.depth_head import DepthHead  # noqa: E402
from polypscope.models.registry import create  # noqa: E402
from polypscope.records import Camera  # noqa: E402
from polypscope.records.errors import MissingInput, ModelError, UsageError  # noqa: E402
from polypscope.runtime.cards import find_card  # noqa: E402
from polypscope.runtime.depth import DepthEstimator  # noqa: E402
from polypscope.runtime.segmenter import Segmenter  # noqa: E402
from polypscope.training.config import TrainConfig  # noqa: E402
from polypscope.training.export import accept  # noqa: E402
from polypscope.training.storage import folded, rounded  # noqa: E402


def _checkpoint(folder: Path, name: str, **arguments: object) -> Path:
    config = TrainConfig.model_validate(
        {"out": folder, "train": [{"root": folder}], "model": {"name": name, "arguments": arguments}}
    )
    torch.manual_seed(0)
    model = _seasoned(create(name, **arguments))
    path = folder / f"{name}.pt"
    torch.save({"model": model.state_dict(), "config": config.model_dump_json()}, path)
    return path


def _seasoned(model: torch.nn.Module) -> torch.nn.Module:
    """Batch norms as after training: fresh ones are nearly the identity and would hide a wrong folding."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor, low, high in (
                (module.running_mean, -0.2, 0.2), (module.running_var, 0.5, 2.0),
                (module.weight.data, 0.5, 1.2), (module.bias.data, -0.2, 0.2),
            ):  # fmt: skip
                tensor.uniform_(low, high)
    return model


def test_a_streaming_model_with_its_depth_head(tmp_path: Path) -> None:
    made = export(_checkpoint(tmp_path, "pns_plus_stream", encoder="lite0"), tmp_path / "s.onnx", size=64)
    assert made.parity < 1e-4
    assert find_card(made.file).storage == "float32"
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


@pytest.mark.parametrize(("name", "arguments"), [("unet", {"width": 8}), ("pns_plus_stream", {"encoder": "lite0"})])
def test_16_bits_are_rounded_before_they_are_exported(
    name: str, arguments: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = _checkpoint(tmp_path, name, **arguments)
    full = export(checkpoint, tmp_path / "full.onnx", size=64)
    half = export(checkpoint, tmp_path / "half.onnx", size=64, half=True)
    assert half.parity < 1e-4  # of the file that was written, against torch with the rounded weights
    assert "rounding the weights to 16 bits moved the probability by up to" in capsys.readouterr().out
    assert half.file.stat().st_size < 0.65 * full.file.stat().st_size
    assert find_card(half.file).storage == "float16"
    assert not list(tmp_path.glob("*.part.onnx"))
    rgb = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    a, b = (Segmenter.load(made.file).predict(rgb).values for made in (full, half))
    assert 0 < np.abs(a - b).max() < 0.05


@pytest.mark.parametrize(("name", "arguments"), [("unet", {"width": 8}), ("pns_plus_stream", {"encoder": "lite0"})])
def test_folding_batch_norms_changes_nothing(name: str, arguments: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = _seasoned(create(name, **arguments)).eval()
    x = torch.randn(1, 3, 64, 64)
    small = folded(model, x)
    assert not [module for module in small.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    with torch.no_grad():
        torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-4)
    large = [parameter for parameter in rounded(small).parameters() if parameter.numel() >= 256]
    assert large
    assert all(torch.equal(parameter, parameter.half().float()) for parameter in large)


def test_weights_beyond_16_bits_stay_whole() -> None:
    layer = torch.nn.Linear(32, 32)
    with torch.no_grad():
        layer.weight[0, 0] = 1e6
    assert torch.equal(rounded(layer).weight, layer.weight)


def test_a_file_that_differs_from_torch_is_not_written(tmp_path: Path) -> None:
    for difference in (2e-4, float("nan")):
        (tmp_path / "x.part.onnx").write_bytes(b"graph")
        with pytest.raises(ModelError, match=r"within 0\.0001, found a difference of .*; nothing was written"):
            accept(tmp_path / "x.part.onnx", tmp_path / "x.onnx", difference)
        assert list(tmp_path.iterdir()) == []


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


def test_an_8_bit_file_keeps_the_exact_parts_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    for index in range(6):
        mask = np.zeros((64, 64), np.uint8)
        mask[10 : 30 + index, 10:40] = 255
        for folder, pixels in (("images", rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)), ("masks", mask)):
            write_image(tmp_path / folder / f"{index}.png", pixels)
    checkpoint = _checkpoint(tmp_path, "pns_plus_stream", encoder="lite0")
    made = export(checkpoint, tmp_path / "s.onnx", size=64, half=True, int8=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "x the bytes and" in said
    assert "6 training pictures, for want of `validate_on`" in said
    assert made.int8 is not None
    assert made.int8.stat().st_size < 0.8 * made.file.stat().st_size
    assert not list(tmp_path.glob("*.p*.onnx"))
    graph = onnx.load(str(made.int8)).graph
    makers = {name: node.op_type for node in graph.node for name in node.output}
    weights = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    exact = [node.name for node in convolutions if makers.get(node.input[1]) != "DequantizeLinear"]
    assert 2 <= len(exact) <= 6, exact
    assert any("_conv_stem" in name for name in exact)
    assert any("head4" in name for name in exact)
    scales = {tensor.name: tensor.dims for tensor in graph.initializer}
    quantised = [node for node in convolutions if node.name not in exact]
    assert len(quantised) > 40
    # One scale per output channel.
    assert any(scales[weights[node.input[1]].input[1]][0] > 1 for node in quantised)
    assert "Clip" not in {makers.get(node.input[0]) for node in quantised}
    segmenter = Segmenter.load(made.int8)
    assert segmenter.card.storage == "int8"
    assert segmenter.card.scores == ()
    assert "instead of" in segmenter.card.notes[-1]
    frame = rng.integers(0, 256, (50, 70, 3), dtype=np.uint8)
    first, second = segmenter.step(frame), segmenter.step(frame)
    assert first.shape == second.shape == (50, 70)
    state = segmenter.state()
    assert np.abs(state["state_beliefs"][0, 0] - state["state_beliefs"][0, 1]).max() < 1e-4  # the same frame twice
