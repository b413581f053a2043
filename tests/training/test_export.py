"""Export of a small model: parity, card, 16-bit storage, and the sentences for what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="exporting needs the train extra")
onnx = pytest.importorskip("onnx", reason="exporting needs the train extra")

from polypscope.api.export import export  # noqa: E402
from polypscope.evaluation.segmentation.overlap import dice  # noqa: E402
from polypscope.io.images import write_image  # noqa: E402
from polypscope.models.depth_head import DepthHead  # noqa: E402
from polypscope.models.registry import create  # noqa: E402
from polypscope.records import Camera  # noqa: E402
from polypscope.records.errors import MissingInput, ModelError, UsageError  # noqa: E402
from polypscope.runtime.cards import find_card  # noqa: E402
from polypscope.runtime.depth import DepthEstimator  # noqa: E402
from polypscope.runtime.segmenter import Segmenter  # noqa: E402
from polypscope.simulator import sequence  # noqa: E402
from polypscope.training.config import TrainConfig  # noqa: E402
from polypscope.training.export import accept  # noqa: E402
from polypscope.training.int8 import export_depth_int8  # noqa: E402
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
    torch.save({"depth": DepthHead().state_dict(), "channels": [24, 40]}, tmp_path / "depth.pt")
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
    with pytest.raises(ModelError, match="expected a checkpoint of `polypscope train`, found a damaged file"):
        export(tmp_path / "text.pt", tmp_path / "x.onnx")
    torch.save(torch.ones(3), tmp_path / "tensor.pt")
    with pytest.raises(ModelError, match="expected a checkpoint of `polypscope train`, found Tensor"):
        export(tmp_path / "tensor.pt", tmp_path / "x.onnx")
    torch.save({"depth": {}, "channels": [24, 40]}, tmp_path / "other.pt")
    with pytest.raises(ModelError, match="found one without its recipe"):
        export(tmp_path / "other.pt", tmp_path / "x.onnx")
    with pytest.raises(UsageError, match="expected a multiple of 32 from 64 on, found 100"):
        export(_checkpoint(tmp_path, "unet", width=4), tmp_path / "x.onnx", size=100)
    with pytest.raises(ModelError, match=r"expected a `depth\.pt`"):
        export(
            tmp_path / "text.pt",
            tmp_path / "d.onnx",
            depth=export(_checkpoint(tmp_path, "unet", width=4), tmp_path / "u.onnx", size=64).file,
        )
    with pytest.raises(ModelError, match="found a checkpoint of another network"):
        export(tmp_path / "other.pt", tmp_path / "d.onnx", depth=tmp_path / "u.onnx")


def _pictures(root: Path) -> None:
    rng = np.random.default_rng(0)
    for index in range(6):
        mask = np.zeros((64, 64), np.uint8)
        mask[10 : 30 + index, 10:40] = 255
        for folder, pixels in (("images", rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)), ("masks", mask)):
            write_image(root / folder / f"{index}.png", pixels)


def test_an_8_bit_file_keeps_the_exact_parts_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    _pictures(tmp_path)
    checkpoint = _checkpoint(tmp_path, "pns_plus_stream", encoder="lite0")
    made = export(checkpoint, tmp_path / "s.onnx", size=64, half=True, int8=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "x the bytes and" in said
    assert f"6 pictures of {tmp_path.name}" in said
    assert made.int8 is not None
    assert made.int8.stat().st_size < 0.8 * made.file.stat().st_size
    assert not list(tmp_path.glob("*.p*.onnx"))
    graph = onnx.load(str(made.int8)).graph
    makers = {name: node.op_type for node in graph.node for name in node.output}
    weights = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    exact = [node.name for node in convolutions if makers.get(node.input[1]) != "DequantizeLinear"]
    assert 2 <= len(exact) <= 8, exact
    assert any("_conv_stem" in name for name in exact)
    assert any("_blocks.0/" in name for name in exact)
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


def test_8_bit_weights_that_mix_channels_have_7_bits(tmp_path: Path) -> None:
    # Two products of an unsigned and a signed byte must fit 16 bits: processors without VNNI add them there.
    _pictures(tmp_path)
    made = export(_checkpoint(tmp_path, "pns_plus_stream", encoder="lite0"), tmp_path / "s.onnx", size=64, int8=True)
    stored = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(str(made.int8)).graph.initializer]
    weights = [values.astype(int) for values in stored if values.dtype == np.int8 and values.ndim == 4]
    largest = {True: 0, False: 0}
    for values in weights:
        mixes = values.shape[1] > 1
        largest[mixes] = max(largest[mixes], int(np.abs(values).max()))
    assert 2 * 255 * largest[True] <= 32767
    assert largest[True] >= 63
    assert largest[False] >= 126


def test_an_exported_file_becomes_8_bits_later(tmp_path: Path) -> None:
    _pictures(tmp_path)
    made = export(_checkpoint(tmp_path, "pns_plus_stream", encoder="lite0"), tmp_path / "s.onnx", size=64, half=True)
    torch.save({"depth": DepthHead().state_dict(), "channels": [24, 40]}, tmp_path / "depth.pt")
    head = export(tmp_path / "depth.pt", tmp_path / "d.onnx", depth=made.file)
    facts = tmp_path / "facts.toml"
    tables = '[[calibrate_on]]\nroot = "."\n[[score_on]]\nroot = "."\nname = "six"\nused_to_choose = true\n'
    facts.write_text(f'summary = "Small."\n{tables}')
    small = export(made.file, tmp_path / "small.onnx", int8=True, facts=facts)
    card = find_card(small.file)
    assert (card.name, card.storage, card.summary) == ("small", "int8", "Small.")
    assert card.made_from == find_card(made.file).sha256
    assert {score.data for score in card.scores} == {"six"}
    assert "6 pictures of six" in card.notes[-1]
    # The head was trained on features of the file that this one was made from, and takes those of both.
    rgb = np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    camera = Camera.from_fov(70, 50, 120, "fisheye")
    near, same = (
        DepthEstimator.load(Segmenter.load(file), head.file).depth(rgb, camera).values
        for file in (small.file, made.file)
    )
    assert 0 < np.nanmean(np.abs(near - same) / same) < 0.1


def test_a_depth_head_in_8_bits(tmp_path: Path) -> None:
    """The stages in 8 bits, the last layer not; close to the whole one; only for the segmenter that it belongs to."""
    torch.manual_seed(0)
    head = _seasoned(DepthHead())
    with torch.no_grad():
        head.out.weight.mul_(0.2)  # distances of a colon
    torch.save({"depth": head.state_dict(), "channels": [24, 40]}, tmp_path / "depth.pt")
    made = export(tmp_path / "depth.pt", tmp_path / "d.onnx", depth=find_card("polypscope-segmenter").weights_path)
    said = export_depth_int8(made.file, tmp_path / "small.onnx", {"summary": "Small."}, sequences=1)
    card, whole = find_card(tmp_path / "small.onnx"), find_card(made.file)
    assert (card.kind, card.storage, card.summary, card.made_from) == ("depth", "int8", "Small.", whole.sha256)
    assert card.segmenter == find_card("polypscope-segmenter").sha256
    assert list(card.notes[-2:]) == said
    assert "4 simulated frames" in said[1]
    assert card.bytes < 0.5 * whole.bytes
    graph = onnx.load(str(tmp_path / "small.onnx")).graph
    names = [tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.INT8]
    assert any("stage5" in name for name in names)
    assert not any("head.out" in name or "merge4" in name for name in names)
    segmenter = Segmenter.load()
    rgb = next(iter(sequence(78, 0, frames=2, width=96, height=96, triangles=20_000))).frame.rgb
    near, same = (
        DepthEstimator.load(segmenter, file).depth(rgb, Camera.from_fov(96, 96, 100)).values
        for file in (tmp_path / "small.onnx", made.file)
    )
    assert 0 < np.nanmean(np.abs(near - same) / same) < 0.1


def test_8_bits_need_pictures_to_calibrate_on(tmp_path: Path) -> None:
    made = export(_checkpoint(tmp_path, "unet", width=4), tmp_path / "u.onnx", size=64)
    with pytest.raises(UsageError, match=r"expected a checkpoint, or with an \.onnx file --int8 .* found no --int8"):
        export(made.file, tmp_path / "x.onnx")
    with pytest.raises(UsageError, match="found no such tables"):
        export(made.file, tmp_path / "x.onnx", int8=True)
    assert not (tmp_path / "x.onnx").exists()
    facts = tmp_path / "facts.toml"
    facts.write_text('[[calibrate_on]]\nroot = "."\n')
    before = made.file.read_bytes()
    with pytest.raises(UsageError, match="expected another file than the one to be put into 8 bits"):
        export(made.file, made.file, int8=True, facts=facts)
    assert made.file.read_bytes() == before


def test_the_shipped_8_bit_file_draws_what_the_whole_one_draws() -> None:
    whole, small = Segmenter.load("polypscope-segmenter"), Segmenter.load("polypscope-segmenter-int8")
    assert small.card.made_from == whole.card.sha256
    assert small.card.threshold == whole.card.threshold
    seen = sequence(78, 0, frames=100, fov_deg=(70.0, 120.0), style="clinical", width=384, height=288, negatives=0.0)
    overlaps = []
    for item in seen.only(range(0, 50, 10)):
        a, b = (segmenter.step(item.frame.rgb) for segmenter in (whole, small))
        assert np.abs(a.values - b.values).mean() < 0.02
        if (a.values >= 0.5).any():
            overlaps.append(dice(a.values >= 0.5, b.values >= 0.5))
    assert len(overlaps) >= 3
    assert min(overlaps) > 0.9


@pytest.mark.parametrize("name", ["polypscope-segmenter", "polypscope-segmenter-int8"])
def test_the_shipped_files_hold_a_polyp_through_three_frames_that_show_nothing(name: str) -> None:
    segmenter = Segmenter.load(name)
    for item in sequence(10, frames=6, width=352, height=352, negatives=0.0, triangles=20_000):
        last = segmenter.step(item.frame.rgb).values >= 0.5
    assert last.any()
    nothing = np.zeros((352, 352, 3), np.uint8)
    assert segmenter.predict(nothing).values.max() < 0.01, "a single picture has nothing to hold on to"
    kept = [segmenter.step(nothing).values for _ in range(5)]
    assert [bool((values >= 0.5).any()) for values in kept] == [True, True, True, False, False]
    assert dice(last, kept[0] >= 0.5) > 0.8
    assert max(values.max() for values in kept) < 0.52, "too little for an alarm, or to be measured"
    segmenter.renew_anchor()
    assert segmenter.step(nothing).values.max() < 0.01
