"""Two real processes under `torchrun`: they share the work, end together, and learn what one process learns."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra")

from torch import distributed, nn  # noqa: E402

from polypscope.models.pns_plus_stream import StreamSegmenter  # noqa: E402
from polypscope.records.errors import UsageError  # noqa: E402
from polypscope.training.config import Simulated, TrainConfig, load_config  # noqa: E402
from polypscope.training.joint import Joint  # noqa: E402
from polypscope.training.loop import train, training_step  # noqa: E402
from polypscope.training.simulated import RAY_SIDE_PX  # noqa: E402

RECIPE = """
out = "{out}"
cache = "{cache}"
cache_side_px = 32
sizes = [32]
workers = 0
threads = 1
frozen_norms = true
[model]
name = "unet"
arguments = {{ width = 4 }}
imagenet = false
[optimiser]
epochs = 1
batch = {batch}
rate = 1e-3
ema = 0.0
warm_up = 0.0
precision = "float32"
[augment]
paste = 0.0
[[train]]
root = "data"
[[validate_on]]
name = "same"
root = "data"
"""

# What each process draws is written down by the data set itself; everything else is the command as a user runs it.
RECORDER = """
import os, sys
from pathlib import Path
from polypscope.training.data import Stills

draw_picture = Stills.__getitem__

def recorded(self, draw):
    with Path(sys.argv[1], f"seen-{os.environ['RANK']}.txt").open("a") as file:
        print(draw.item, file=file)
    return draw_picture(self, draw)

Stills.__getitem__ = recorded
from polypscope.cli import main
main(["train", sys.argv[2]])
"""


def _write_data(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for index in range(count):
        mask = np.zeros((32, 32), np.uint8)
        cv2.circle(mask, (10 + index, 16), 6, 255, -1)
        picture = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) // (1 + (mask > 0)[..., None])
        for name, pixels in (("images", picture), ("masks", mask)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(folder / name / f"{index}.png"), pixels)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _torchrun(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    return subprocess.run(
        [*launcher, "--master-port", str(_free_port()), *command],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_two_processes_share_the_pictures_and_equal_one(tmp_path: Path) -> None:
    _write_data(tmp_path / "data", 8)
    (tmp_path / "recorder.py").write_text(RECORDER)
    (tmp_path / "two.toml").write_text(RECIPE.format(out="two", cache="cache-two", batch=2))
    done = _torchrun(tmp_path, "recorder.py", str(tmp_path), "two.toml")
    assert done.returncode == 0, done.stderr
    seen = [(tmp_path / f"seen-{rank}.txt").read_text().split() for rank in (0, 1)]
    assert [len(part) for part in seen] == [4, 4]
    assert sorted(seen[0] + seen[1]) == [str(item) for item in range(8)]
    assert len((tmp_path / "two" / "log.csv").read_text().splitlines()) == 2
    assert (tmp_path / "two" / "run.json").is_file()
    assert done.stdout.count("weights in ") == 1

    # Without batch statistics, two batches of two with averaged gradients are one batch of four.
    (tmp_path / "one.toml").write_text(RECIPE.format(out="one", cache="cache-one", batch=4))
    torch.set_num_threads(1)
    alone = torch.load(train(load_config(tmp_path / "one.toml"), say=lambda text: None), weights_only=True)["model"]
    together = torch.load(tmp_path / "two" / "weights.pt", weights_only=True)["model"]
    for name, value in alone.items():
        assert float((together[name] - value).abs().max()) < 2e-5, name


@pytest.fixture
def one_process_group(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ["image part", "joint"])
@pytest.mark.usefixtures("one_process_group")
def test_no_parameter_waits_for_a_gradient_that_never_comes(kind: str) -> None:
    # Data-parallel training stops at the second step if a parameter that wants a gradient got none in the first.
    torch.manual_seed(0)
    joint = kind == "joint"
    config = TrainConfig.model_validate(
        {
            "out": "unused",
            "train": [{"root": "unused"}],
            "optimiser": {"batch": 4, "precision": "float32"},
            "simulated": Simulated(folder=Path("unused"), share=0.5) if joint else None,
        }
    )
    segmenter = StreamSegmenter("lite0")
    model = (Joint(segmenter) if joint else segmenter).train().to(memory_format=torch.channels_last)
    runner = nn.parallel.DistributedDataParallel(model)
    mask = torch.zeros(4, 1, 64, 64, dtype=torch.uint8)
    mask[:3, :, 20:40, 20:40] = 255
    batch = [torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8), mask]
    batch += [torch.full((4, 16, 16), 25.0), torch.ones(4, 3, RAY_SIDE_PX, RAY_SIDE_PX)]
    for _ in range(2):
        runner.zero_grad(set_to_none=True)
        training_step(runner, batch, config).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    assert not all(parameter.requires_grad for parameter in model.parameters()), "a frozen part must be there"


def test_too_few_pictures_for_a_batch_are_named(tmp_path: Path) -> None:
    _write_data(tmp_path / "data", 3)
    (tmp_path / "recipe.toml").write_text(RECIPE.format(out="run", cache="cache", batch=4))
    with pytest.raises(UsageError, match="at least one batch of 4 pictures for each of 1 processes, found 3 pictures"):
        train(load_config(tmp_path / "recipe.toml"), say=lambda text: None)
