"""Segmenter, presence and depth trained together: what reaches the network is consistent, and all parts learn."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the train extra")

import torch

from polypscope.geometry.cameras import project, rays
from polypscope.models.depth_head import DepthHead
from polypscope.models.pns_plus_stream import StreamSegmenter
from polypscope.records import Camera
from polypscope.training.averaging import average_runs
from polypscope.training.config import Simulated
from polypscope.training.joint import Joint, joint_loss, simulated_count, turned, zoomed
from polypscope.training.loop import load_start
from polypscope.training.losses import depth_loss
from polypscope.training.simulated import RAY_SIDE_PX, SIDE_PX, ray_directions


@pytest.mark.parametrize("lens", ["pinhole", "fisheye"])
def test_rays_stay_with_the_pixels_that_they_look_through(lens: str) -> None:
    # The picture shows its own viewing directions, so after any turn and zoom both must still agree.
    camera = Camera.from_fov(480, 400, 110.0, lens).resized(SIDE_PX, SIDE_PX)
    field = rays(camera)
    unit = field / np.linalg.norm(field, axis=-1, keepdims=True)
    picture = np.round((unit + 1) * 127).astype(np.uint8)
    ray_mm = unit[2::4, 2::4, 0].astype(np.float32) * 10 + 50
    for seed in range(24):
        rng = np.random.default_rng(seed)
        mask = np.zeros((SIDE_PX, SIDE_PX), np.uint8)
        parts = turned(picture, mask, ray_mm, ray_directions(camera), rng)
        # A swap of the axes also swaps what the channels of this picture mean.
        rng = np.random.default_rng(seed)
        swapped, mirrored_x, mirrored_y = (rng.random() < 0.5 for _ in range(3))
        rgb, _, _, seen = zoomed(*parts, 320, rng)
        shown = rgb.reshape(320, 320, 3).astype(np.float64) / 127 - 1
        if swapped:
            shown = shown[..., [1, 0, 2]]
        shown = shown * [-1 if mirrored_x else 1, -1 if mirrored_y else 1, 1]
        coarse = torch.nn.functional.interpolate(
            torch.from_numpy(shown).permute(2, 0, 1)[None], size=(RAY_SIDE_PX, RAY_SIDE_PX), mode="area"
        )[0].permute(1, 2, 0)
        inner = np.s_[1:-1, 1:-1]
        assert np.abs(coarse.numpy() - seen)[inner].max() < 0.02


def test_depth_pixels_stay_with_the_picture() -> None:
    ramp = np.linspace(0, 255, SIDE_PX)
    picture = np.repeat(np.round(np.add.outer(ramp, ramp) / 2).astype(np.uint8)[..., None], 3, -1)
    ray_mm = picture[2::4, 2::4, 0].astype(np.float32)
    rays_ = np.zeros((RAY_SIDE_PX, RAY_SIDE_PX, 3), np.float32)
    rays_[..., 2] = 1
    for seed in range(12):
        rng = np.random.default_rng(seed)
        parts = turned(picture, picture[..., 0].copy(), ray_mm, rays_, rng)
        rgb, mask, depth, _ = zoomed(*parts, 256, rng)
        assert np.abs(rgb[2::4, 2::4, 0].astype(float) - depth).max() < 4
        assert np.abs(rgb[..., 0].astype(float) - mask).max() < 3


def test_every_part_learns_and_the_memory_does_not() -> None:
    torch.manual_seed(0)
    model = Joint(StreamSegmenter("lite0")).train()
    settings = Simulated(folder="unused", share=0.5)
    assert simulated_count(4, settings) == 2
    x, mask = torch.randn(4, 3, 64, 64), torch.zeros(4, 1, 64, 64, dtype=torch.uint8)
    mask[:3, :, 20:40, 20:40] = 255
    field = torch.zeros(2, 3, RAY_SIDE_PX, RAY_SIDE_PX)
    field[:, 2] = 1
    loss, measured = joint_loss(*model(x, field), mask, torch.full((2, 16, 16), 25.0), settings)
    loss.backward()
    assert torch.isfinite(loss)
    assert measured > 0
    for name, parameter in model.named_parameters():
        if name.startswith("segmenter.memory."):
            assert parameter.grad is None, name
            continue
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    for part in (model.segmenter.encoder, model.segmenter.presence, model.depth, model.segmenter.merge4):
        assert max(float(parameter.grad.abs().max()) for parameter in part.parameters()) > 0


def test_a_run_goes_on_from_a_joint_one_and_a_shallower_head_grows(tmp_path) -> None:
    torch.manual_seed(0)
    first = Joint(StreamSegmenter("lite0")).eval()
    field = torch.zeros(1, 3, RAY_SIDE_PX, RAY_SIDE_PX)
    field[:, 2] = 1
    x = torch.randn(1, 3, 64, 64)
    parts = ("edges.", "grain", "place.", "surveys.", "mix8.", *(f"mix.{n}." for n in range(3, 12)))
    grown = tuple(f"depth.{part}" for part in parts)
    shallow = {name: value for name, value in first.state_dict().items() if not name.startswith(grown)}
    assert len(shallow) < len(first.state_dict())
    torch.save({"model": {}, "average": shallow}, tmp_path / "last.pt")
    torch.manual_seed(1)
    second, alone = Joint(StreamSegmenter("lite0")).eval(), StreamSegmenter("lite0").eval()
    load_start(second, tmp_path / "last.pt")
    load_start(alone, tmp_path / "last.pt")
    with torch.no_grad():
        for told, expected in zip(second(x, field), first(x, field), strict=True):
            torch.testing.assert_close(told, expected)
        torch.testing.assert_close(alone(x), first.segmenter(x))


def test_the_mean_of_two_runs_lies_between_them(tmp_path) -> None:
    torch.manual_seed(0)
    runs = [Joint(StreamSegmenter("lite0")).state_dict() for _ in range(2)]
    runs[1]["depth.surveys.1.out.weight"].normal_()
    shallow = {name: value for name, value in runs[0].items() if not name.startswith("depth.surveys.1.")}
    for name, state in (("first", shallow), ("second", runs[1])):
        torch.save({"average": state, "config": "{}"}, tmp_path / f"{name}.pt")
    average_runs(tmp_path / "first.pt", tmp_path / "second.pt", tmp_path / "mean", 0.25)
    mean = torch.load(tmp_path / "mean" / "weights.pt", weights_only=True)["model"]
    depth = torch.load(tmp_path / "mean" / "depth.pt", weights_only=True)
    name = "merge4.coarse.0.weight"
    a, b = (state[f"segmenter.{name}"] for state in runs)
    torch.testing.assert_close(mean[name], 0.75 * a + 0.25 * b)
    assert tuple(depth["channels"]) == Joint(StreamSegmenter("lite0")).depth.channels
    DepthHead(tuple(depth["channels"])).load_state_dict(depth["depth"])
    grown = "surveys.1.out.weight"
    torch.testing.assert_close(depth["depth"][grown], 0.25 * runs[1][f"depth.{grown}"])
    kept = "surveys.1.norm.running_var"
    torch.testing.assert_close(depth["depth"][kept], runs[1][f"depth.{kept}"])
    StreamSegmenter("lite0").load_state_dict(mean)
    further = Joint(StreamSegmenter("lite0"))
    load_start(further, tmp_path / "mean" / "joint.pt")
    torch.testing.assert_close(further.segmenter.state_dict()[name], mean[name])
    torch.testing.assert_close(further.depth.state_dict()[kept], depth["depth"][kept])
    average_runs(tmp_path / "mean" / "joint.pt", tmp_path / "second.pt", tmp_path / "again", 0.5)
    again = torch.load(tmp_path / "again" / "weights.pt", weights_only=True)["model"]
    torch.testing.assert_close(again[name], 0.375 * a + 0.625 * b)


def test_flattened_relief_costs_its_differences_over_one_to_eight_pixels() -> None:
    rows, columns = np.mgrid[:32, :32]
    bump = 0.2 * np.exp(-((rows - 16) ** 2 + (columns - 16) ** 2) / 60)
    truth = torch.from_numpy(30 * np.exp(-bump)).float()[None]
    log_b = torch.full((1, 32, 32), -2.0)
    too_far = float(np.log(np.exp(bump).mean()))  # as much as the flat guess is on average
    guesses = torch.full_like(truth, float(np.log(30))), truth.log() + too_far  # flat, or of a wrong scale
    alike = torch.ones_like(truth)
    flat, scaled = (float(depth_loss(torch.stack([guess, log_b], 1), truth, alike)) for guess in guesses)
    relief = sum(
        share * (np.abs(bump[step:] - bump[:-step]).mean() + np.abs(bump[:, step:] - bump[:, :-step]).mean())
        for step, share in ((1, 2.0), (2, 0.6), (4, 0.4), (8, 0.3))
    )
    assert flat - scaled == pytest.approx(relief, rel=1e-4)


def test_projection_of_the_rays_gives_the_pixels_back() -> None:
    camera = Camera.from_fov(320, 240, 100.0, "pinhole").resized(RAY_SIDE_PX, RAY_SIDE_PX)
    pixels = project(camera, ray_directions(camera) * 30)
    grid = np.stack(np.meshgrid(np.arange(RAY_SIDE_PX), np.arange(RAY_SIDE_PX)), -1)
    np.testing.assert_allclose(pixels, grid, atol=1e-4)
