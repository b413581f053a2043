"""Training the depth head alone: it learns, and a run that was stopped ends as one that was not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra")

from polypscope.models.depth_head import DepthHead  # noqa: E402
from polypscope.models.pns_plus_stream import StreamSegmenter  # noqa: E402
from polypscope.records.errors import MissingInput, UsageError  # noqa: E402
from polypscope.training.config import DepthConfig, load_recipe  # noqa: E402
from polypscope.training.depth import Features, depth_errors, features_of, polyp_weight, train_depth  # noqa: E402
from polypscope.training.joint import Joint  # noqa: E402
from polypscope.training.simulated import Shard  # noqa: E402


@pytest.fixture
def config(tmp_path: Path) -> DepthConfig:
    rng = np.random.default_rng(0)
    (tmp_path / "simulated").mkdir()
    rays = np.zeros((22, 22, 3), np.float32)
    rays[..., 2] = 1
    for index in range(3):
        # The nearer, the brighter: something that can be learnt from one frame.
        near = rng.uniform(0.2, 1, (1, 4))
        rgb = np.broadcast_to((250 * near[..., None, None, None]).astype(np.uint8), (1, 4, 352, 352, 3)) - rng.integers(
            0, 20, (1, 4, 352, 352, 3)
        ).astype(np.uint8)
        ray_mm = np.broadcast_to((40 * (1.2 - near))[..., None, None], (1, 4, 88, 88)).astype(np.float16)
        mask = np.zeros((1, 4, 352, 352), np.uint8)
        mask[..., 100:200, 100:200] = 255
        Shard(rgb, mask, ray_mm, rays).save(tmp_path / "simulated" / f"{index:05d}.npz")
    torch.manual_seed(1)
    torch.save({"model": Joint(StreamSegmenter("lite0")).state_dict()}, tmp_path / "joint.pt")
    return DepthConfig(
        kind="depth", out=tmp_path / "run", start=tmp_path / "joint.pt", encoder="lite0",
        features=tmp_path / "features", simulated=tmp_path / "simulated", shards=3, held_out=1,
        epochs=2, batch=2, threads=1,
    )  # fmt: skip


def _head(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["depth"]


def test_the_head_learns_and_can_be_exported(config: DepthConfig) -> None:
    said: list[str] = []
    weights = train_depth(config.model_copy(update={"epochs": 12}), said.append)
    told = [float(line.split("loss ")[1].split(",")[0]) for line in said if "AbsRel" in line]
    assert told[-1] < told[0] - 0.5, told
    content = torch.load(weights, weights_only=True)
    DepthHead(tuple(content["channels"])).load_state_dict(content["depth"])


def test_a_run_that_was_stopped_ends_as_one_that_was_not(config: DepthConfig) -> None:
    def stop(line: str) -> None:
        if line.startswith("epoch 1 batch"):
            raise KeyboardInterrupt

    whole = _head(train_depth(config.model_copy(update={"out": config.out / "whole"}), lambda _: None))
    parted = config.model_copy(update={"out": config.out / "parted"})
    with pytest.raises(KeyboardInterrupt):
        train_depth(parted, stop)
    said: list[str] = []
    again = _head(train_depth(parted, said.append))
    assert "resuming after epoch 0" in said
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_features_are_those_of_the_frozen_encoder_and_kept(config: DepthConfig) -> None:
    model = Joint(StreamSegmenter("lite0")).eval()
    paths = sorted(config.simulated.glob("*.npz"))
    said: list[str] = []
    made = features_of(model, paths, config.features, said.append)
    assert len(made) == 6  # every second frame of three clips
    shard = Shard.load(paths[1])
    inputs, ray_mm, polyp = made.batch(np.array([2, 3]))
    x = (torch.from_numpy(shard.rgb[0, ::2]).permute(0, 3, 1, 2).float() - 127) / 128
    torch.testing.assert_close(inputs[3], x)
    with torch.no_grad():
        for kept, expected in zip(inputs[:3], model.segmenter.encode(x), strict=True):
            assert float((kept - expected).abs().mean() / expected.abs().mean()) < 0.02  # 16 bits
    np.testing.assert_array_equal(ray_mm.numpy(), shard.ray_mm[0, ::2].astype(np.float32))
    assert polyp.mean() == pytest.approx((shard.mask[0, 0] > 0).mean(), abs=1e-3)
    count = len(said)
    assert len(features_of(model, paths, config.features, said.append)) == 6
    assert len(said) == count
    with torch.no_grad():
        model.segmenter.encoder._conv_stem.weight.mul_(0.5)
    other = features_of(model, paths, config.features, said.append)
    assert len(said) > count
    assert not np.array_equal(other.batch(np.array([2, 3]))[0][0], inputs[0])


def test_polyps_weigh_what_they_are_worth() -> None:
    polyp = torch.zeros(3, 88, 88)
    polyp[0, :30, :30] = 1  # 12 %: a share of 0.3 would be 2.6 times the wall's weight, so the lower limit holds
    polyp[1, :15, :15] = 1  # 3 %
    polyp[2, :2, :2] = 1  # so small that the upper limit holds
    weight = polyp_weight(polyp)
    assert weight[0, 0, 0] == pytest.approx(4)
    assert float((weight[1] - 1).sum()) == pytest.approx(0.3 * 88 * 88)
    assert weight[2, 0, 0] == pytest.approx(31)
    assert (weight[:, 40:, 40:] == 1).all()


def test_errors_of_a_head_that_is_a_tenth_too_far() -> None:
    class Told(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return torch.full((len(inputs[0]), 2, 88, 88), float(np.log(33.0)))

    shape = {"f4": (2, 88, 88), "f8": (2, 44, 44), "f16": (2, 22, 22), "rgb": (3, 352, 352), "rays": (3, 22, 22)}
    data = Features.__new__(Features)
    data.arrays = {name: np.zeros((2, *one), np.uint8) for name, one in shape.items()}
    data.arrays["ray_mm"] = np.full((2, 88, 88), 30, np.float16)
    data.arrays["ray_mm"][0, 0, 0] = np.nan
    data.arrays["polyp"] = np.zeros((2, 88, 88), np.uint8)
    metric, aligned, on_polyp = depth_errors(Told(), data)
    assert metric == pytest.approx(0.1, rel=0.02)
    assert aligned == pytest.approx(0, abs=1e-6)
    assert np.isnan(on_polyp)


def test_a_run_goes_on_from_an_exported_head(config: DepthConfig, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="reading an exported file needs the train extra")
    from polypscope.training.export import export_depth, export_segmenter, write_card

    trained = train_depth(config.model_copy(update={"epochs": 6}), lambda _: None)
    model = StreamSegmenter("lite0")
    weights = torch.load(config.start, weights_only=True)["model"]
    model.load_state_dict({k.removeprefix("segmenter."): v for k, v in weights.items() if k.startswith("segmenter.")})
    facts = {"summary": "", "licence": "Apache-2.0"}
    written = export_segmenter(model.eval(), "pns_plus_stream", tmp_path / "s.onnx", 352)
    write_card(tmp_path / "s.onnx", "made", "pns_plus_stream", written.spec, facts)
    export_depth(trained, tmp_path / "d.onnx", tmp_path / "s.onnx", "made-depth", facts)
    onward = config.model_copy(
        update={"start": tmp_path / "s.onnx", "head": tmp_path / "d.onnx", "out": tmp_path / "onward", "epochs": 1}
    )
    fresh = onward.model_copy(update={"head": None, "out": tmp_path / "fresh"})
    losses = {}
    for name, recipe in (("onward", onward), ("fresh", fresh)):
        said: list[str] = []
        train_depth(recipe, said.append)
        losses[name] = next(float(line.split("loss ")[1].split(" ")[0]) for line in said if "batch 0/" in line)
    assert losses["onward"] < losses["fresh"] - 0.3, losses


def test_bad_recipes_are_told(config: DepthConfig, tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match=r"joint\.pt"):
        train_depth(config.model_copy(update={"start": tmp_path / "absent.pt"}))
    with pytest.raises(UsageError, match="held out"):
        train_depth(config.model_copy(update={"held_out": 3}), lambda _: None)
    with pytest.raises(UsageError, match="at least one batch"):
        train_depth(config.model_copy(update={"batch": 64}), lambda _: None)


def test_the_shipped_recipe_is_of_this_kind() -> None:
    recipe = load_recipe(Path(__file__).parents[2] / "recipes" / "depth.toml")
    assert isinstance(recipe, DepthConfig)
    assert recipe.features.is_absolute()
