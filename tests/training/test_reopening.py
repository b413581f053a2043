"""Exported files as the start of further training: the same function, and norms that training does not upset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra")
onnx = pytest.importorskip("onnx", reason="reading an exported file needs the train extra")

from polypscope.models.depth_head import DepthHead  # noqa: E402
from polypscope.models.ensemble import Ensemble  # noqa: E402
from polypscope.models.pns_plus_stream import StreamSegmenter  # noqa: E402
from polypscope.models.registry import create  # noqa: E402
from polypscope.records import Camera  # noqa: E402
from polypscope.records.errors import MissingInput, ModelError, UsageError  # noqa: E402
from polypscope.runtime.backends import open_session  # noqa: E402
from polypscope.runtime.cards import find_card  # noqa: E402
from polypscope.runtime.depth import SHARED  # noqa: E402
from polypscope.runtime.segmenter import Segmenter  # noqa: E402
from polypscope.simulator import sequence  # noqa: E402
from polypscope.training.config import load_recipe  # noqa: E402
from polypscope.training.export import export_depth, export_segmenter, load_members, write_card  # noqa: E402
from polypscope.training.joint import Joint  # noqa: E402
from polypscope.training.loop import build, load_start  # noqa: E402
from polypscope.training.reopening import reopen, settle_norms, settle_sizes  # noqa: E402
from polypscope.training.simulated import ray_directions  # noqa: E402

EXAMPLE = torch.zeros(1, 3, 64, 64)


def seasoned(model: torch.nn.Module) -> torch.nn.Module:
    """Batch norms as after training: fresh ones are nearly the identity and would hide a mistake."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 2.0)
            module.weight.data.uniform_(0.5, 1.2)
            module.bias.data.uniform_(-0.2, 0.2)
    return model.eval()


def exported(model: torch.nn.Module, name: str, path: Path, half: bool = False) -> Path:
    written = export_segmenter(model, name, path, 64, half)
    write_card(path, "made", name, written.spec, {"summary": "", "licence": "Apache-2.0"})
    return path


@pytest.mark.parametrize(
    ("name", "arguments"), [("pns_plus_stream", {"encoder": "lite0"}), ("unet", {"width": 8}), ("pranet", {})]
)
def test_a_model_comes_back_as_it_was(name: str, arguments: dict, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, again = seasoned(create(name, **arguments)), create(name, **arguments)
    x = torch.randn(2, 3, 64, 64)
    path = exported(model, name, tmp_path / "m.onnx")
    with torch.no_grad():
        assert float((again.eval()(x) - model(x)).abs().max()) > 1e-2
        reopen(again, path, EXAMPLE)
        torch.testing.assert_close(again.eval()(x), model(x), atol=1e-4, rtol=1e-4)


def test_the_shipped_segmenter_is_what_training_starts_from(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    recipe = tmp_path / "mine.toml"
    text = 'out = "run"\nstart = "polypscope-segmenter"\nfrozen_norms = true\n[[train]]\nroot = "data"\n'
    recipe.write_text(text)
    config = load_recipe(recipe)
    assert config.start == find_card("polypscope-segmenter").weights_path
    model = build(config).eval()
    shipped = Segmenter.load("polypscope-segmenter")
    rgb = np.random.default_rng(0).integers(0, 256, (352, 352, 3), dtype=np.uint8)
    rgb[100:200, 120:220] = (230, 120, 110)
    with torch.no_grad():
        told = model((torch.from_numpy(rgb).permute(2, 0, 1)[None].float() - 127) / 128).sigmoid()[0, 0].numpy()
    np.testing.assert_allclose(told, shipped.predict(rgb).values, atol=1e-4)
    recipe.write_text(text.replace("frozen_norms = true\n", ""))
    with pytest.raises(UsageError, match=r"^Recipe: expected `frozen_norms = true` .*, found false\.$"):
        build(load_recipe(recipe))
    recipe.write_text(text.replace("polypscope-segmenter", "polypscope-segmentor"))
    with pytest.raises(MissingInput, match=r"or the name of a shipped model, found nothing at .*segmentor"):
        build(load_recipe(recipe))


def test_a_joint_run_takes_the_segmenter_and_keeps_its_own_head(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = exported(seasoned(StreamSegmenter("lite0")), "pns_plus_stream", tmp_path / "s.onnx", half=True)
    model = Joint(StreamSegmenter("lite0"))
    head = {name: value.clone() for name, value in model.depth.state_dict().items()}
    stem = model.segmenter.encoder._conv_stem.weight.detach().clone()
    load_start(model, path)
    assert not torch.equal(stem, model.segmenter.encoder._conv_stem.weight)
    assert all(torch.equal(value, head[name]) for name, value in model.depth.state_dict().items())


def head_inputs() -> tuple[torch.Tensor, ...]:
    rays = torch.nn.functional.normalize(torch.rand(4, 3, 22, 22) + 0.1, dim=1)
    sizes = ((24, 32), (40, 16), (3, 128))
    return (*(torch.rand(4, channels, side, side) for channels, side in sizes), rays)


def test_a_depth_head_comes_back_and_its_norms_settle(tmp_path: Path) -> None:
    torch.manual_seed(0)
    owner = exported(seasoned(StreamSegmenter("lite0")), "pns_plus_stream", tmp_path / "s.onnx")
    head, again = seasoned(DepthHead()), DepthHead()
    torch.save({"depth": head.state_dict(), "channels": [24, 40]}, tmp_path / "depth.pt")
    facts = {"summary": "", "licence": "Apache-2.0"}
    export_depth(tmp_path / "depth.pt", tmp_path / "d.onnx", owner, "made-depth", facts)
    inputs = head_inputs()
    reopen(again, tmp_path / "d.onnx", *inputs)
    with torch.no_grad():
        expected = head(*inputs)
        torch.testing.assert_close(again.eval()(*inputs), expected, atol=1e-3, rtol=1e-3)
        unsettled = float((again.train()(*inputs) - expected).abs().mean())
        reopen(again, tmp_path / "d.onnx", *inputs)
        settle_norms(again, lambda: again(*inputs))
        torch.testing.assert_close(again.eval()(*inputs), expected, atol=1e-3, rtol=1e-3)
        # In training a norm uses the batch's own statistics: settled ones have just these.
        torch.testing.assert_close(again.train()(*inputs), expected, atol=1e-2, rtol=1e-2)
    assert unsettled > 0.05
    assert not any(module._forward_pre_hooks for module in again.modules())


def test_weights_before_norms_get_the_size_that_they_are_born_with() -> None:
    torch.manual_seed(2)
    head, inputs = seasoned(DepthHead()), head_inputs()
    with torch.no_grad():
        head.stage3[0]._expand_conv.weight.mul_(torch.logspace(-2, 2, 240).view(-1, 1, 1, 1))
        head.stage3[0]._expand_conv.weight[7] = 0  # a channel that says nothing
        before = head(*inputs)
        lone = head.surveys[0].query.weight.clone()
        settle_sizes(head, *inputs)
        torch.testing.assert_close(head(*inputs), before, rtol=1e-4, atol=1e-4)
    for (name, one), fresh in zip(head.named_modules(), DepthHead().modules(), strict=True):
        if isinstance(one, torch.nn.Conv2d) and one.bias is None:
            size = one.weight.detach().flatten(1).square().mean(1).sqrt()
            assert size[size > 0].max() / size[size > 0].min() == pytest.approx(1, abs=1e-4), name
            assert float(size.max()) == pytest.approx(float(fresh.weight.detach().square().mean().sqrt()), rel=0.2), (
                name
            )
    assert torch.equal(head.surveys[0].query.weight, lone)  # no norm follows: size means something


def test_the_shipped_depth_head_is_what_its_training_goes_on_from() -> None:
    """Its weights as they were rounded to 8 bits: the file differs only by what it rounds on the way."""
    shipped, head = find_card("polypscope-depth").weights_path, DepthHead()
    seen = next(iter(sequence(78, 0, frames=1, width=352, height=352, negatives=0.0, triangles=20_000)))
    told = Segmenter.load().features_of(seen.frame.rgb)
    rays = ray_directions(Camera.from_fov(352, 352, 78.4))[None]
    expected = open_session(shipped).run({"rays": rays, **{name: told[name] for name in SHARED}})["ray_mm"]
    image, f4, f8 = (torch.from_numpy(told[name].copy()) for name in SHARED)
    inputs = (f4, f8, (image.permute(0, 3, 1, 2).float() - 127) / 128, torch.from_numpy(rays).permute(0, 3, 1, 2))
    reopen(head, shipped, *inputs)
    with torch.no_grad():
        found = head.eval()(*inputs)[:, :1].clamp(-1, 7).exp().numpy()
    assert np.abs(found / expected - 1).mean() < 0.03


def test_a_file_whose_layers_lost_their_names_is_told(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = exported(seasoned(create("unet", width=8)), "unet", tmp_path / "u.onnx")
    content = onnx.load(str(path))
    kernel = next(tensor for tensor in content.graph.initializer if len(tensor.dims) == 4)
    for node in content.graph.node:
        node.input[:] = ["onnx::Conv_7" if name == kernel.name else name for name in node.input]
    kernel.name = "onnx::Conv_7"
    onnx.save(content, str(path))
    card = write_card(path, "made", "unet", find_card(path).input, {"summary": "", "licence": "Apache-2.0"})
    assert card.sha256 == find_card(path).sha256
    with pytest.raises(ModelError, match="expected layers with the names of their model, found onnx::Conv_7"):
        reopen(create("unet", width=8), path, EXAMPLE)


def test_a_file_with_more_layers_than_the_model_is_told(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = exported(seasoned(create("unet", width=8)), "unet", tmp_path / "u.onnx")
    headless = create("unet", width=8)
    headless.head = torch.nn.Identity()
    with pytest.raises(ModelError, match=r"expected weights of a UNet, found head\.bias, which that has not"):
        reopen(headless, path, EXAMPLE)


def test_files_that_do_not_fit_are_told(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = exported(seasoned(StreamSegmenter("lite0")), "pns_plus_stream", tmp_path / "s.onnx")
    with pytest.raises(ModelError, match=r"s\.onnx: expected .* of shape .*, found"):
        reopen(StreamSegmenter("lite2"), path, EXAMPLE)
    with pytest.raises(ModelError, match="expected weights of a UNet"):
        reopen(create("unet", width=8), path, EXAMPLE)
    with pytest.raises(MissingInput, match="found nothing there"):
        reopen(StreamSegmenter("lite0"), tmp_path / "absent.onnx", EXAMPLE)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ModelError, match="SHA-256"):
        reopen(StreamSegmenter("lite0"), path, EXAMPLE)


def test_an_8_bit_stream_is_no_start() -> None:
    with pytest.raises(ModelError, match=r"found an 8-bit file of a .* memory, .* from the file that it was made"):
        reopen(StreamSegmenter("lite1"), find_card("polypscope-segmenter-int8").weights_path, EXAMPLE)


def test_the_members_of_the_shipped_8_bit_ensemble_come_back_as_they_were_rounded() -> None:
    card = find_card("polypscope-segmenter-stills")
    members = load_members(card.name)
    shown = sequence(
        seed=10, frames=1, width=card.input.width, height=card.input.width, negatives=0.0, triangles=20_000
    )
    rgb = next(iter(shown)).frame.rgb
    x = (torch.from_numpy(rgb.copy()).permute(2, 0, 1)[None].float() - 127) / 128
    with torch.no_grad():
        found = Ensemble.of(members).eval()(x).sigmoid()[0, 0].numpy()
        alone = members[0].eval()(x).sigmoid()[0, 0].numpy()
    expected = Segmenter.load(card.name).predict(rgb).values
    assert expected.max() > 0.9
    # Only what the runtime rounds between the layers differs.
    assert np.abs(found - expected).mean() < 3e-4
    assert ((found >= 0.5) != (expected >= 0.5)).mean() < 0.02 * (expected >= 0.5).mean()
    assert np.abs(alone - expected).mean() > 3 * np.abs(found - expected).mean()
