"""The shipped architecture: an empty state adds nothing, and streaming equals the window."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="models need the train extra")

from polypscope.models.pns_plus_stream import PAST, Memory, State, StreamSegmenter, held  # noqa: E402


@pytest.fixture(scope="module", params=["untrained memory", "trained memory"])
def model(request: pytest.FixtureRequest) -> StreamSegmenter:
    torch.manual_seed(0)
    network = StreamSegmenter("lite0")
    if request.param == "trained memory":
        torch.nn.init.normal_(network.memory.correct[-1].weight, std=0.5)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0  # one picture sets the statistics, so that signals reach the output
    with torch.no_grad():
        network(torch.randn(4, 3, 64, 64))
    return network.eval()


def _logits(model: StreamSegmenter, frame: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
    logits, state = model.step(model.encode(frame), state)
    return torch.nn.functional.interpolate(logits, size=frame.shape[-2:], mode="bilinear"), state


@torch.no_grad()
def test_an_empty_state_is_the_image_network(model: StreamSegmenter) -> None:
    frame = torch.randn(2, 3, 64, 96)
    logits, _ = _logits(model, frame, model.empty_state(2, 64, 96))
    assert torch.allclose(logits, model(frame), atol=1e-5)


@torch.no_grad()
def test_streaming_equals_the_window(model: StreamSegmenter) -> None:
    still = torch.randn(1, 1, 3, 64, 64)
    clip = still + 0.3 * torch.randn(1, PAST + 3, 3, 64, 64)  # frames that resemble each other
    state = model.empty_state(1, 64, 64)
    for index in range(clip.shape[1]):
        logits, state = _logits(model, clip[:, index], state)
        expected = model.window(clip[:, : index + 1])
        assert torch.allclose(logits.sigmoid(), expected.sigmoid(), atol=1e-4)
        if index == 0:
            continue
        assert not torch.allclose(logits, model(clip[:, index]), atol=1e-3), "the state must matter in this test"


@torch.no_grad()
def test_the_anchor_is_the_first_frame_until_the_count_is_zeroed(model: StreamSegmenter) -> None:
    first, second = torch.randn(1, 3, 64, 64), torch.randn(1, 3, 64, 64)
    _, one = _logits(model, first, model.empty_state(1, 64, 64))
    _, two = _logits(model, second, one)
    assert torch.equal(two.anchor, one.anchor)
    _, renewed = _logits(model, second, one._replace(count=torch.zeros_like(one.count)))
    assert torch.equal(renewed.anchor, renewed.memory[:, 0])


def _matched_place_by_place(
    now: torch.Tensor, own: torch.Tensor, keys: torch.Tensor, beliefs: torch.Tensor, memory: Memory
) -> torch.Tensor:
    """The matching memory with a loop over frames and moves, as its definition reads."""
    height, width = now.shape[-2:]
    size = own.shape[-2:]
    reach = (size[0] // height, size[1] // width)

    def resize(maps: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(maps, size=size, mode="bilinear")

    total, weights, told, trusts = own, torch.ones_like(own), [], []
    for t in range(keys.shape[1]):
        near = torch.nn.functional.pad(keys[:, t], (1, 1, 1, 1))
        moves = [(dy, dx) for dy in range(3) for dx in range(3)]
        alike = torch.stack([(now * near[:, :, y : y + height, x : x + width]).sum(1) for y, x in moves], 1)
        share = resize((memory.log_sharpness.exp() * alike).softmax(1))
        best = alike.amax(1, keepdim=True)
        trust = torch.where(best > 0, best.clamp(1e-3, 1) ** memory.log_refusal.exp(), 0.0)
        trust = memory.log_weight[t].exp() * resize(trust)
        belief = torch.nn.functional.pad(beliefs[:, t], (reach[1], reach[1], reach[0], reach[0]), mode="replicate")
        moved = torch.zeros_like(own)
        for index, (dy, dx) in enumerate(moves):
            y, x = dy * reach[0], dx * reach[1]
            moved = moved + share[:, index : index + 1] * belief[:, :, y : y + size[0], x : x + size[1]]
        total, weights = total + trust * moved, weights + trust
        told.append(0.25 * trust * (moved - own))
        trusts.append(trust)
    mean = total / weights
    return mean + (1 - 1 / weights) * memory.correct(torch.cat([0.25 * own, 0.25 * mean, *told, *trusts], 1))


@torch.no_grad()
@pytest.mark.parametrize(("height", "width", "reach"), [(4, 6, 4), (5, 3, 2), (1, 1, 4)])
def test_matching_equals_a_loop_over_frames_and_moves(height: int, width: int, reach: int) -> None:
    torch.manual_seed(0)
    memory = Memory().double()
    for parameter in memory.parameters():
        torch.nn.init.normal_(parameter, std=0.3) if parameter.ndim == 4 else parameter.data.add_(0.2)
    scene = torch.randn(2, 16, height, width, dtype=torch.float64)
    views = [memory.key(torch.roll(scene, shift, 3) + 0.2 * torch.randn_like(scene)) for shift in (0, 1, -1)]
    keys = torch.stack([*views, torch.zeros_like(scene)], 1)
    own = 4 * torch.randn(2, 1, height * reach, width * reach, dtype=torch.float64)
    beliefs = 4 * torch.randn(2, 4, 1, height * reach, width * reach, dtype=torch.float64)
    found = memory(memory.key(scene), own, keys, beliefs)
    expected = _matched_place_by_place(memory.key(scene), own, keys, beliefs, memory)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    assert float((found - own).abs().max()) > 0.5, "the memory must matter in this test"


def _followed(found: list[bool]) -> list[tuple[float, float]]:
    """Logits inside and outside of a place where frames found a polyp or, in between, nothing."""
    here = torch.zeros(1, 1, 24, 24, dtype=torch.bool)
    here[..., 8:16, 8:16] = True
    evidence, told = torch.zeros(1, 1, 24, 24), []
    for there in found:
        own = torch.where(here & there, 6.0, -6.0)
        logits, evidence = held(own, own, evidence)
        told.append((float(logits[0, 0, 12, 12]), float(logits[~here].max())))
    return told


@pytest.mark.parametrize(("before", "lasts"), [(1, 0), (2, 1), (3, 2), (5, 3), (20, 3)])
def test_an_outline_outlives_frames_that_show_nothing_the_longer_it_was_seen(before: int, lasts: int) -> None:
    told = _followed([True] * before + [False] * 8)
    assert [inside > 0 for inside, _ in told[before:]] == [True] * lasts + [False] * (8 - lasts)
    assert all(inside < 0.041 for inside, _ in told[before:]), "a probability of 0.51 is no alarm and is not measured"
    assert told[0] == (6.0, -6.0)
    assert all(outside == -6 for _, outside in told)


def test_frames_without_a_polyp_are_no_debt_and_doubtful_ones_no_whole_vote() -> None:
    told = _followed([False] * 20 + [True] * 2 + [False])
    assert told[-1][0] > 0, "however long there was nothing, two frames are worth one"
    own = torch.full((1, 1, 4, 4), 0.3)
    assert torch.allclose(held(own, own, torch.ones_like(own))[1], torch.tensor(0.95 + 0.3))


def test_a_frame_with_a_finding_of_its_own_is_not_touched_by_evidence() -> None:
    own = torch.full((2, 1, 24, 24), -6.0)
    own[0, :, :4, :4] = 3.0
    logits, evidence = held(own - 1, own, torch.full((2, 1, 24, 24), 4.0))
    assert torch.equal(logits[0], own[0] - 1)
    assert (logits[1] > 0).all(), "the second frame of the batch shows nothing, and keeps what there was"
    assert float(evidence[0, 0, 20, 20]) == pytest.approx(0.95 * 4 - 1), "but the votes are counted"
    assert float(evidence[0, 0, 0, 0]) == 4, "and limited"


def test_a_held_outline_lies_where_the_votes_are_even() -> None:
    votes = torch.linspace(0.6, 2.4, 19).expand(1, 1, 19, 19)  # against one vote of the present frame
    own = torch.full((1, 1, 19, 19), -6.0)
    logits, _ = held(own, own, votes / 0.95)
    assert (logits > 0).equal(votes > 1.0001)
    row = logits[0, 0, 0]
    assert row[3:6].tolist() == pytest.approx([-0.004, 0.0, 0.004], abs=1e-4)


@torch.no_grad()
def test_streaming_holds_an_outline_through_a_frame_that_shows_nothing(model: StreamSegmenter) -> None:
    blind = copy.deepcopy(model)
    blind.head4.weight.zero_()
    blind.head4.bias.fill_(-2.0)
    features = blind.encode(torch.randn(1, 3, 64, 64))
    nothing = blind.empty_state(1, 64, 64)
    assert (blind.step(features, nothing)[0] < 0).all()
    kept, after = blind.step(features, nothing._replace(evidence=torch.full((1, 1, 16, 16), 3.0)))
    assert (kept > 0).all()
    assert torch.allclose(after.evidence, torch.tensor(0.95 * 3 - 1))
