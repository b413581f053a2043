"""Training the depth head alone: it learns, and a run that was stopped ends as one that was not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra")

from polypscope.models.depth_head import DepthHead  # noqa: E402
from polypscope.models.pns_plus_stream import StreamSegmenter  # noqa: E402
from polypscope.records.errors import MissingInput, ModelError, UsageError  # noqa: E402
from polypscope.runtime.cards import find_card  # noqa: E402
from polypscope.runtime.segmenter import Segmenter  # noqa: E402
from polypscope.simulator import sequence  # noqa: E402
from polypscope.training.config import DepthConfig, load_recipe  # noqa: E402
from polypscope.training.depth import (  # noqa: E402
    EncoderFeatures,
    ExportedFeatures,
    Views,
    depth_errors,
    draws,
    inputs_of,
    polyp_weight,
    train_depth,
)
from polypscope.training.simulated import Shard, render_shards, render_views  # noqa: E402


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
    torch.save({"model": StreamSegmenter("lite0").state_dict()}, tmp_path / "weights.pt")
    return DepthConfig(
        kind="depth", out=tmp_path / "run", start=tmp_path / "weights.pt", encoder="lite0",
        simulated=tmp_path / "simulated", shards=3, held_out=1, epochs=2, length=4, batch=2, threads=1,
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


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_recipe_says_how_many_frames_may_be_cut(
    config: DepthConfig, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = []
    monkeypatch.setattr("polypscope.training.depth.zoomed", lambda *given: cut.append(given) or given[:4])
    train_depth(config.model_copy(update={"epochs": 1, "zoomed": share}), lambda _: None)
    assert len(cut) == share * config.length


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


def test_views_are_turned_with_their_rays_and_as_rendered_without_a_seed(config: DepthConfig) -> None:
    rng = np.random.default_rng(4)
    rays = rng.normal(size=(22, 22, 3)).astype(np.float32)
    rays /= np.linalg.norm(rays, axis=-1, keepdims=True)
    ray_mm = rng.uniform(5, 60, (3, 2, 88, 88)).astype(np.float16)
    shard = Shard(
        rng.integers(0, 256, (3, 2, 352, 352, 3), dtype=np.uint8), np.zeros((3, 2, 352, 352), np.uint8), ray_mm, rays
    )
    shard.save(config.simulated / "00003.npz")
    views = Views([config.simulated / "00003.npz"] * 2)
    assert len(views) == 12
    rgb, mask, told, field = views[9, None]  # the second shard's fourth frame: clip 1, frame 1
    np.testing.assert_array_equal(rgb.permute(1, 2, 0), shard.rgb[1, 1])
    np.testing.assert_array_equal(told, ray_mm[1, 1].astype(np.float32))
    np.testing.assert_array_equal(field.permute(1, 2, 0), rays)
    assert mask.shape == (1, 352, 352)
    changed = [views[9, seed] for seed in range(6)]
    assert len({float(item[2][0, 0]) for item in changed}) > 2
    for item in changed:  # turned or zoomed, viewing rays stay directions
        torch.testing.assert_close(item[3].norm(dim=0), torch.ones(22, 22), atol=1e-4, rtol=0)
    assert all(torch.equal(a, b) for a, b in zip(views[9, 5], changed[5], strict=True))
    whole = np.sort(ray_mm[1, 1].astype(np.float32), axis=None)
    for zoomed in (0.0, 1.0):  # a turned view keeps every distance, a part of it does not
        turned = [Views(views.paths, zoomed)[9, seed][2].numpy() for seed in range(6)]
        assert all(np.array_equal(np.sort(told, axis=None), whole) for told in turned) == (zoomed == 0.0)


def test_only_missing_shards_are_rendered_and_one_that_cannot_be_is_named(config: DepthConfig) -> None:
    there = (config.simulated / "00000.npz").read_bytes()
    (config.simulated / "00004.part.npz").mkdir()  # in the way of what is written
    said: list[str] = []
    found = render_shards(config.simulated, [4, 0, 5], said.append, jobs=1, views=True)
    assert [path.stem for path in found] == ["00000", "00005"]
    assert found[0].read_bytes() == there
    shard, fresh = Shard.load(found[1]), render_views(5)
    np.testing.assert_array_equal(shard.rgb, fresh.rgb)
    np.testing.assert_array_equal(shard.ray_mm, fresh.ray_mm)
    assert said[0].startswith(f"rendering 2 sequences into {config.simulated}")
    assert len(said) == 2
    assert said[1].startswith("sequence 4 left out: IsADirectoryError")
    render_shards(config.simulated, [0, 5], said.append, jobs=1, views=True)
    assert len(said) == 2


def test_a_shard_is_loaded_as_it_was_saved_and_changes_stay_in_memory(config: DepthConfig) -> None:
    path = config.simulated / "00003.npz"
    rng = np.random.default_rng(5)
    rays = np.asfortranarray(rng.normal(size=(22, 22, 3)).astype(np.float32))  # numpy saves these by columns
    rgb, mask = (rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((2, 1, 8, 8, 3), (2, 1, 8, 8)))
    Shard(rgb, mask, rng.uniform(5, 60, (2, 1, 2, 2)).astype(np.float16), rays).save(path)
    with np.load(path) as saved:
        for _ in range(2):
            loaded = Shard.load(path)
            for name in ("rgb", "mask", "ray_mm", "directions"):
                array = getattr(loaded, name)
                assert array.dtype == saved[name].dtype
                np.testing.assert_array_equal(array, saved[name])
                array[:] = 0


def test_every_frame_is_drawn_before_any_is_drawn_again() -> None:
    drawn = [item for epoch in range(5) for item in draws(10, epoch, 4, seed=1)]
    numbers = [number for number, _ in drawn]
    assert sorted(numbers[:10]) == sorted(numbers[10:]) == list(range(10))
    assert numbers[:10] != numbers[10:]
    assert len({seed for _, seed in drawn}) == 20


def test_the_head_gets_the_first_features_of_the_frozen_encoder() -> None:
    torch.manual_seed(0)
    encoder = StreamSegmenter("lite0").eval().encoder
    rgb = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    f4, f8, x, _ = inputs_of(EncoderFeatures(encoder), rgb, torch.rand(2, 3, 22, 22))
    torch.testing.assert_close(x, (rgb.float() - 127) / 128)
    with torch.no_grad():
        for told, expected in zip((f4, f8), encoder(x)[1:3], strict=True):
            assert float((told - expected).abs().mean() / expected.abs().mean()) < 0.03  # 16 bits


def test_norms_are_folded_into_the_frozen_encoder() -> None:
    torch.manual_seed(3)
    encoder = StreamSegmenter("lite0").encoder
    for layer in encoder.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
            torch.nn.init.normal_(layer.bias)
            layer.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 64, 64)
    quick = EncoderFeatures(encoder.eval()).encoder
    below = quick._blocks[: quick.taps[2] + 1]
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for block in below for layer in block.modules())
    with torch.no_grad():
        for told, expected in zip(quick(x, 3), encoder(x, 3), strict=True):
            torch.testing.assert_close(told, expected, rtol=1e-3, atol=1e-3)


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
            return torch.full((len(inputs[0]), 2, 16, 16), float(np.log(33.0)))

    ray_mm = torch.full((2, 16, 16), 30.0)
    ray_mm[0, 0, 0] = torch.nan
    mask = torch.zeros(2, 1, 64, 64, dtype=torch.uint8)
    batch = (torch.zeros(2, 3, 64, 64, dtype=torch.uint8), mask, ray_mm, torch.rand(2, 3, 22, 22))
    features = EncoderFeatures(StreamSegmenter("lite0").eval().encoder)
    metric, aligned, on_polyp = depth_errors(Told(), features, iter([batch]))
    assert metric == pytest.approx(0.1, rel=1e-3)
    assert aligned == pytest.approx(0, abs=1e-6)
    assert np.isnan(on_polyp)
    mask[1, :, :32, :32] = 255
    ray_mm[1, :8, :8] = 66.0
    assert depth_errors(Told(), features, iter([batch]))[2] == pytest.approx(0.5, rel=1e-3)


def test_a_run_goes_on_from_an_exported_head(config: DepthConfig, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="reading an exported file needs the train extra")
    from polypscope.training.export import export_depth, export_segmenter, write_card

    trained = train_depth(config.model_copy(update={"epochs": 6}), lambda _: None)
    model = StreamSegmenter("lite0")
    model.load_state_dict(torch.load(config.start, weights_only=True)["model"])
    facts = {"summary": "", "licence": "Apache-2.0"}
    written = export_segmenter(model.eval(), "pns_plus_stream", tmp_path / "s.onnx", 352)
    write_card(tmp_path / "s.onnx", "made", "pns_plus_stream", written.spec, facts)
    export_depth(trained, tmp_path / "d.onnx", tmp_path / "s.onnx", "made-depth", facts)
    onward = config.model_copy(
        update={"start": tmp_path / "s.onnx", "head": tmp_path / "d.onnx", "out": tmp_path / "onward", "epochs": 1}
    )
    checkpoint = onward.model_copy(update={"head": trained, "out": tmp_path / "checkpoint"})
    fresh = onward.model_copy(update={"head": None, "out": tmp_path / "fresh"})
    losses = {}
    for name, recipe in (("onward", onward), ("checkpoint", checkpoint), ("fresh", fresh)):
        said: list[str] = []
        train_depth(recipe, said.append)
        losses[name] = next(float(line.split("loss ")[1].split(" ")[0]) for line in said if "batch 0/" in line)
    assert losses["onward"] < losses["fresh"] - 0.3, losses
    assert losses["checkpoint"] < losses["fresh"] - 0.3, losses


def test_the_head_can_be_taught_with_the_features_that_it_will_read(config: DepthConfig) -> None:
    pytest.importorskip("onnx", reason="reading an exported file needs the train extra")
    shipped = {name: find_card(name).weights_path for name in ("polypscope-segmenter", "polypscope-segmenter-int8")}
    rgb = torch.from_numpy(np.array([item.frame.rgb for item in sequence(3, frames=2, width=352, height=352)]))
    segmenter = Segmenter.load("polypscope-segmenter-int8")
    told = ExportedFeatures(shipped["polypscope-segmenter-int8"], 2)(rgb.permute(0, 3, 1, 2))
    for number, picture in enumerate(rgb.numpy()):
        wanted = segmenter.features_of(picture)
        for name, found in zip(("feature_4", "feature_8"), told, strict=True):
            np.testing.assert_allclose(found[number], wanted[name][0], atol=1e-5)
    whole = ExportedFeatures(shipped["polypscope-segmenter"], 2)(rgb.permute(0, 3, 1, 2))
    assert all((a - b).abs().max() > 0.01 for a, b in zip(told, whole, strict=True))  # 8 bits are not the same

    first = []
    for reads in (None, shipped["polypscope-segmenter-int8"]):
        said: list[str] = []
        recipe = config.model_copy(
            update={"start": shipped["polypscope-segmenter"], "encoder": "lite1", "reads": reads, "epochs": 1,
                    "out": config.out / str(reads is None)}
        )  # fmt: skip
        train_depth(recipe, said.append)
        first.append(next(line.split("loss ")[1].split(" ")[0] for line in said if "batch 0/" in line))
    assert first[0] != first[1]


def test_a_run_can_write_the_mean_of_what_it_went_on_from_and_what_it_learnt(config: DepthConfig) -> None:
    before = train_depth(config.model_copy(update={"out": config.out / "before", "epochs": 1}), lambda _: None)
    on, said = config.model_copy(update={"head": before, "seed": 9}), list[str]()
    after = train_depth(on.model_copy(update={"out": config.out / "after"}), lambda _: None)
    mean = train_depth(on.model_copy(update={"out": config.out / "mean", "before": 0.25}), said.append)
    weights = [torch.load(path, weights_only=True)["depth"] for path in (before, after, mean)]
    for old, new, both in zip(*(state.values() for state in weights), strict=True):
        if old.is_floating_point():
            torch.testing.assert_close(both, 0.25 * old + 0.75 * new)
    assert any((old != new).any() for old, new in zip(weights[0].values(), weights[1].values(), strict=True))
    assert sum("0.25 of them: AbsRel" in line for line in said) == 1


def test_sequences_seen_before_are_left_out_and_not_rendered(config: DepthConfig) -> None:
    first, second = (config.simulated / f"{index:05d}.npz" for index in (0, 1))
    first.unlink()
    second.unlink()
    alone = config.model_copy(update={"held_out": 0, "seen": 2, "epochs": 1})
    assert train_depth(alone, lambda _: None).is_file()
    assert not first.exists()
    assert not second.exists()
    second.write_bytes(b"")  # nothing that was trained on or judged by may be read from this
    with pytest.raises(zipfile.BadZipFile):
        train_depth(alone.model_copy(update={"seen": 1, "out": config.out / "more"}), lambda _: None)


def test_bad_recipes_are_told(config: DepthConfig, tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="segmenter to branch from"):
        train_depth(config.model_copy(update={"start": tmp_path / "absent.pt"}))
    with pytest.raises(MissingInput, match="depth head to go on from"):
        train_depth(config.model_copy(update={"head": tmp_path / "absent.pt"}), lambda _: None)
    text, narrow, strange = (tmp_path / f"{name}.pt" for name in ("text", "narrow", "strange"))
    text.write_text("hello")
    torch.save({"depth": DepthHead((16, 24)).state_dict(), "channels": [16, 24]}, narrow)
    torch.save({"weights": {}}, strange)
    with pytest.raises(ModelError, match=r"text\.pt: expected a weights\.pt of an earlier run, found a damaged"):
        train_depth(config.model_copy(update={"start": text}))
    with pytest.raises(ModelError, match=r"strange\.pt: expected a weights\.pt of an earlier run, found a checkp"):
        train_depth(config.model_copy(update={"start": strange}))
    with pytest.raises(ModelError, match=r"text\.pt: expected a `depth\.pt` of `polypscope train`, found a dam"):
        train_depth(config.model_copy(update={"head": text}), lambda _: None)
    with pytest.raises(ModelError, match="found one for 16 and 24"):
        train_depth(config.model_copy(update={"head": narrow}), lambda _: None)
    with pytest.raises(
        ModelError, match="expected a segmenter that tells feature_4, feature_8, found polypscope-depth"
    ):
        train_depth(config.model_copy(update={"reads": find_card("polypscope-depth").weights_path}))
    names = {"start": "polypscope-segmenter", "reads": "polypscope-segmenter-simulated"}
    foreign = {key: find_card(name).weights_path for key, name in names.items()}
    with pytest.raises(ModelError, match="or its 8-bit form, found polypscope-segmenter-simulated"):
        train_depth(config.model_copy(update={**foreign, "encoder": "lite1"}))
    with pytest.raises(UsageError, match="held out"):
        train_depth(config.model_copy(update={"held_out": 3}), lambda _: None)
    with pytest.raises(UsageError, match="2 seen before, found 3"):
        train_depth(config.model_copy(update={"seen": 2}), lambda _: None)
    with pytest.raises(UsageError, match="at least one batch"):
        train_depth(config.model_copy(update={"batch": 64}), lambda _: None)


def test_each_stage_of_the_shipped_head_goes_on_from_the_one_before() -> None:
    recipes = Path(__file__).parents[2] / "recipes"
    before: DepthConfig | None = None
    for stage in (".first", ".second", ".third", ".fourth", ".fifth", ""):
        recipe = load_recipe(recipes / f"depth{stage}.toml")
        assert isinstance(recipe, DepthConfig)
        assert recipe.simulated.is_absolute()
        assert recipe.head == (before and before.out / "depth.pt")
        if before is not None:
            assert (recipe.simulated, recipe.held_out) == (before.simulated, before.held_out)
            assert recipe.shards >= before.shards
        before = recipe
