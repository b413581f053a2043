"""Training the memory: the image part stays as it is, a finished run is not repeated, and it learns."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra")

from polypscope.models.pns_plus_stream import PAST, StreamSegmenter  # noqa: E402
from polypscope.training.config import MemoryConfig, TrainConfig  # noqa: E402
from polypscope.training.memory import clip_loss, train_memory  # noqa: E402
from polypscope.training.simulated import Shard  # noqa: E402


@pytest.fixture
def config(tmp_path: Path) -> MemoryConfig:
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        (tmp_path / "data" / name).mkdir(parents=True)
    for index in range(3):
        picture = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        cv2.imwrite(str(tmp_path / "data" / "images" / f"{index}.png"), picture)
        cv2.imwrite(
            str(tmp_path / "data" / "masks" / f"{index}.png"), cv2.circle(picture[..., 0] * 0, (20, 20), 9, 255, -1)
        )
    (tmp_path / "simulated").mkdir()
    Shard(
        rng.integers(0, 256, (2, PAST + 1, 352, 352, 3), dtype=np.uint8),
        np.where(rng.random((2, PAST + 1, 352, 352)) < 0.1, 255, 0).astype(np.uint8),
        np.full((2, PAST + 1, 88, 88), 30, np.float16),
        np.zeros((22, 22, 3), np.float32),
    ).save(tmp_path / "simulated" / "00000.npz")
    torch.manual_seed(1)
    base = TrainConfig(out=tmp_path / "image", model={"arguments": {"encoder": "lite0"}}, train=())
    start = tmp_path / "start.pt"
    torch.save({"model": StreamSegmenter("lite0").state_dict(), "config": base.model_dump_json()}, start)
    return MemoryConfig(
        kind="memory", out=tmp_path / "run", start=start, simulated=tmp_path / "simulated", shards=1, cache_side_px=64,
        steps=4, clips=1, workers=0, train=({"root": tmp_path / "data"},),
    )  # fmt: skip


def _weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["model"]


def test_only_the_memory_changes(config: MemoryConfig) -> None:
    before, after = _weights(config.start), _weights(train_memory(config, say=lambda _: None))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith("memory.") for name in changed)


def test_trust_scales_what_each_remembered_frame_counts(config: MemoryConfig) -> None:
    name = "memory.log_weight"
    whole = _weights(train_memory(config, say=lambda _: None))[name]
    half = _weights(train_memory(config.model_copy(update={"trust": 0.5}), say=lambda _: None))[name]
    torch.testing.assert_close(half.exp(), 0.5 * whole.exp())


def test_a_finished_run_is_not_repeated(config: MemoryConfig) -> None:
    said: list[str] = []
    first = _weights(train_memory(config, say=said.append))
    count = len(said)
    again = _weights(train_memory(config, say=said.append))
    assert len(said) == count
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_spoilt_frame_is_outlined_from_those_before_it() -> None:
    torch.manual_seed(0)
    model = StreamSegmenter("lite0").eval().requires_grad_(False)
    yes, no = torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1)
    mask = torch.zeros(1, PAST + 1, 64, 64, dtype=torch.uint8)
    mask[:, :, 16:48, 16:48] = 255
    shape = (mask[:, 0].float()[:, None] / 255 * 16 - 8)[..., ::4, ::4]
    # A decoder that knows the polyp in every frame but the last, and features that stay the same.
    told = iter([torch.cat([shape] * PAST + [torch.full_like(shape, -1.0)]) for _ in range(80)])
    model.decode = lambda *features: [next(told), yes, no]  # type: ignore[method-assign]
    model.encode = lambda x: (x, x, torch.ones(PAST + 1, 96, 4, 4))  # type: ignore[method-assign]
    optimiser = torch.optim.Adam(model.memory.requires_grad_(True).parameters(), lr=0.02)
    rgb = torch.zeros(1, PAST + 1, 64, 64, 3, dtype=torch.uint8)
    losses = []
    for _ in range(60):
        loss, alone = clip_loss(model, rgb, mask, PAST, anchored=False)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]
    assert losses[-1] < 0.2 * alone
