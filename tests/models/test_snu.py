"""SNU: covering the cell that holds the evidence lowers the score most, and the map says whether as well as where."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="networks need the train extra")

from polypscope.models.sliding import BLACK  # noqa: E402
from polypscope.models.snu import GRID, SNU, GoogLeNet  # noqa: E402
from polypscope.records.errors import UsageError  # noqa: E402
from polypscope.training.config import TrainConfig  # noqa: E402
from polypscope.training.loop import build  # noqa: E402
from polypscope.training.losses import presence_loss  # noqa: E402

CELL_PX = 8
SIDE_PX = GRID * CELL_PX


class RedSpots(torch.nn.Module):
    """A classifier whose evidence is known: each red pixel adds to the log odds of a polyp."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        red = (x[:, :1] > 0.5) & (x[:, 1:2] < 0)
        return red.float().sum((2, 3), keepdim=True) - 3


def _spot(x: torch.Tensor, row: int, column: int, side: int) -> None:
    top, left = row * CELL_PX + 2, column * CELL_PX + 3
    x[:, 0, top : top + side, left : left + side] = 0.9
    x[:, 1, top : top + side, left : left + side] = -0.9


@pytest.fixture
def network() -> SNU:
    network = SNU(width=0.03, size=SIDE_PX).eval()
    network.classifier = RedSpots()
    return network


@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 7), (2, 5), (5, 2), (7, 3)])
def test_the_cell_with_the_evidence_has_the_largest_drop(network: SNU, row: int, column: int) -> None:
    x = torch.zeros(1, 3, SIDE_PX, SIDE_PX)
    _spot(x, row, column, 3)
    other = (7 - row, 7 - column)
    _spot(x, *other, 1)
    whole, drops = network.drops(x)
    assert float(whole) == 7.0
    assert drops[0, 0, row, column] == 9
    assert drops[0, 0, other[0], other[1]] == 1
    assert drops.sum() == 10
    highest = network(x)[0, 0] == network(x).max()
    assert highest.sum() == CELL_PX**2
    assert highest[row * CELL_PX : (row + 1) * CELL_PX, column * CELL_PX : (column + 1) * CELL_PX].all()


def test_one_cell_at_a_time_is_covered_in_black_and_nothing_else_changes(network: SNU) -> None:
    seen: list[torch.Tensor] = []
    network.classifier.register_forward_hook(lambda module, given, told: seen.append(given[0]))
    x = torch.rand(2, 3, SIDE_PX, SIDE_PX)
    network.drops(x)
    covered = seen[1].unflatten(0, (2, GRID * GRID))
    for number in (0, 1, 9, 63):
        rows, columns = (slice(at * CELL_PX, (at + 1) * CELL_PX) for at in divmod(number, GRID))
        expected = x.clone()
        expected[:, :, rows, columns] = BLACK
        assert torch.allclose(covered[:, number], expected)


def test_the_map_is_as_sure_as_the_classifier(network: SNU) -> None:
    for side in (1, 2, 3):
        x = torch.zeros(1, 3, SIDE_PX, SIDE_PX)
        _spot(x, 4, 4, side)
        found = network(x).sigmoid()
        assert float(found.max()) == pytest.approx(float(network.classifier(x).sigmoid()), abs=1e-5)
        assert int((found > 0.05).sum()) == CELL_PX**2
    assert network(torch.zeros(1, 3, SIDE_PX, SIDE_PX)).sigmoid().max() < 0.02, "no cell matters, so none is named"


def test_a_picture_is_judged_whole_in_training() -> None:
    torch.manual_seed(0)
    answers = SNU(width=0.03, size=SIDE_PX).train()(torch.rand(2, 3, 96, 80))
    assert [tuple(answer.shape) for answer in answers] == [(2, 1, 1, 1)] * 3
    assert sum(p.numel() for p in GoogLeNet().parameters()) == pytest.approx(6e6, rel=0.1)


@pytest.mark.parametrize(("answer", "last"), [(0, 10), (1, 3), (2, 6)])
def test_each_answer_is_of_the_whole_picture_and_teaches_all_levels_up_to_its_own(answer: int, last: int) -> None:
    torch.manual_seed(0)
    network = GoogLeNet(width=0.1).train()
    seen: list[tuple[int, ...]] = []
    network.output.register_forward_hook(lambda module, given, told: seen.append(tuple(given[0].shape[-2:])))
    network(torch.rand(4, 3, SIDE_PX, SIDE_PX))[answer].square().mean().backward()
    assert seen == [(1, 1)]
    for number, level in enumerate(network.levels):
        taught = [p.grad is not None and bool(p.grad.any()) for p in level.parameters() if p.ndim == 4]
        assert taught == [number <= last] * len(taught), number


def test_presence_is_what_is_taught() -> None:
    truth = torch.zeros(2, 1, 16, 16)
    truth[1, 0, 3, 4] = 1  # one pixel of polyp is a polyp
    right = torch.tensor([-4.0, 4.0]).reshape(2, 1, 1, 1)
    unsure = torch.zeros_like(right)
    assert presence_loss([right] * 3, truth) < 0.05
    assert presence_loss([-right] * 3, truth) > 4
    for level in range(3):  # each of the three answers is taught
        answers = [right if index == level else unsure for index in range(3)]
        assert presence_loss(answers, truth) < presence_loss([unsure] * 3, truth) - 0.1


@pytest.mark.parametrize(("name", "loss"), [("snu", "structure"), ("cumed", "presence")])
def test_a_loss_that_does_not_fit_is_refused(name: str, loss: str) -> None:
    fields = {"out": "run", "train": [{"root": "data"}], "model": {"name": name}, "optimiser": {"loss": loss}}
    with pytest.raises(UsageError, match='expected `loss = "presence"` for a network that judges whole pictures only'):
        build(TrainConfig.model_validate(fields))
