"""The runtime around a graph small enough to know its answer: red channel plus what the state remembers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from polypscope.records import ProbabilityMap
from polypscope.records.errors import MissingInput, ModelError, RecordError, UsageError
from polypscope.runtime.cards import InputSpec, ModelCard, Score, add_scores, find_card, load_card
from polypscope.runtime.segmenter import Segmenter, _around_small, _without_doubtful, to_network

onnx = pytest.importorskip("onnx", reason="building the test graph needs the train extra")
SIZE = 8


def _write_model(folder: Path, size: int = SIZE, gain: float = 0.5, **changes: object) -> Path:
    """probability = gain * red / 255 + 0.5 * state; the next state is the probability."""
    from onnx import TensorProto, helper

    def tensor(name: str, kind: int, shape: list) -> object:
        return helper.make_tensor_value_info(name, kind, shape)

    nodes = [
        helper.make_node("Cast", ["image"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["f"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Split", ["t"], ["red", "green", "blue"], axis=1, num_outputs=3),
        helper.make_node("Mul", ["red", "scale"], ["now"]),
        helper.make_node("Mul", ["state_last", "half"], ["past"]),
        helper.make_node("Add", ["now", "past"], ["probability"]),
        helper.make_node("Identity", ["probability"], ["next_last"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            tensor("image", TensorProto.UINT8, ["n", size, size, 3]),
            tensor("state_last", TensorProto.FLOAT, ["n", 1, size, size]),
        ],
        [
            tensor("probability", TensorProto.FLOAT, ["n", 1, size, size]),
            tensor("next_last", TensorProto.FLOAT, ["n", 1, size, size]),
        ],
        [
            helper.make_tensor("scale", TensorProto.FLOAT, [], [gain / 255]),
            helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = folder / "tiny.onnx"
    path.write_bytes(model.SerializeToString())
    card = ModelCard(
        name="tiny",
        kind="segmenter",
        architecture="red",
        summary="A graph for tests.",
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        bytes=path.stat().st_size,
        input=InputSpec(width=SIZE, height=SIZE),
    ).model_copy(update=changes)
    (folder / "tiny.json").write_text(card.model_dump_json())
    return path


def _red(value: int, shape: tuple[int, int] = (12, 20)) -> np.ndarray:
    picture = np.zeros((*shape, 3), np.uint8)
    picture[..., 0] = value
    return picture


def test_a_picture_comes_back_at_its_own_size(tmp_path: Path) -> None:
    segmenter = Segmenter.load(_write_model(tmp_path))
    probability = segmenter.predict(_red(255))
    assert probability.shape == (12, 20)
    assert np.allclose(probability.values, 0.5)


def test_step_remembers_and_predict_does_not(tmp_path: Path) -> None:
    segmenter = Segmenter.load(_write_model(tmp_path))
    values = [float(segmenter.step(_red(255)).values.mean()) for _ in range(3)]
    assert values == pytest.approx([0.5, 0.75, 0.875])
    assert float(segmenter.predict(_red(255)).values.mean()) == pytest.approx(0.5)
    assert float(segmenter.step(_red(255)).values.mean()) == pytest.approx(0.9375)
    segmenter.renew_anchor()
    assert float(segmenter.step(_red(255)).values.mean()) == pytest.approx(0.5)


def test_a_batch_of_different_sizes_equals_single_pictures(tmp_path: Path) -> None:
    segmenter = Segmenter.load(_write_model(tmp_path))
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (h, w, 3), np.uint8) for h, w in ((9, 7), (30, 40), (8, 8))]
    for one, rgb in zip(segmenter.predict_batch(pictures), pictures, strict=True):
        assert np.array_equal(one.values, segmenter.predict(rgb).values)


def test_the_mirror_image_is_turned_back_before_it_is_averaged(tmp_path: Path) -> None:
    # The graph works pixel by pixel, so both looks must agree where they lie on one another.
    segmenter = Segmenter.load(_write_model(tmp_path))
    rgb = np.random.default_rng(1).integers(0, 256, (SIZE, SIZE, 3), np.uint8)
    once, careful = segmenter.predict(rgb), segmenter.predict(rgb, careful=True)
    np.testing.assert_allclose(careful.values, once.values, atol=1e-6)


def test_a_careful_look_is_the_mean_of_the_picture_and_its_mirror_image() -> None:
    # With a graph that looks beyond single pixels, so that both looks differ, and a picture without a finding.
    segmenter = Segmenter.load()
    rgb = np.random.default_rng(3).integers(0, 256, (352, 352, 3), np.uint8)
    once, mirrored = segmenter.predict(rgb).values, segmenter.predict(rgb[:, ::-1].copy()).values[:, ::-1]
    assert once.max() < 0.5
    scale = once.max()
    assert np.abs(once - mirrored).max() > 0.05 * scale
    np.testing.assert_allclose(segmenter.predict(rgb, careful=True).values, (once + mirrored) / 2, atol=1e-3 * scale)


def test_a_small_finding_is_looked_at_again_from_nearer(tmp_path: Path) -> None:
    segmenter = Segmenter.load(_write_model(tmp_path, gain=1.0))
    rgb = np.zeros((64, 96, 3), np.uint8)
    rgb[28:40, 68:86, 0] = 191  # 0.75
    whole = np.zeros((64, 96), np.float32)
    whole[30:38, 70:84] = 0.9
    near = segmenter._nearer(ProbabilityMap(whole), rgb).values
    side = 42  # three times 14
    assert np.array_equal(near[:, : 96 - side], whole[:, : 96 - side])
    # The mean of the logits of 0.9 and 0.75, as odds the root of 9 * 3.
    assert near[34, 77] == pytest.approx(27**0.5 / (1 + 27**0.5), abs=0.02)
    assert near[15, 60] == pytest.approx(0, abs=1e-3)
    # What is not found again stays as it was: from nearer, a soft picture shows less.
    assert np.array_equal(segmenter._nearer(ProbabilityMap(whole), rgb // 2).values, whole)


def test_a_careful_look_goes_nearer_and_leaves_the_features_of_the_whole_picture(tmp_path: Path) -> None:
    segmenter = Segmenter.load(_write_model(tmp_path, gain=1.0))
    rgb = np.zeros((24, 24, 3), np.uint8)
    rgb[9:12, 9:12, 0] = 255  # one pixel of the network
    once = segmenter.predict(rgb)
    expected = segmenter._nearer(once, rgb).values  # mirror images change nothing in a graph of single pixels
    careful = segmenter.predict(rgb, careful=True).values
    np.testing.assert_allclose(careful, expected, atol=1e-6)
    assert np.abs(careful - once.values).max() > 0.02
    np.testing.assert_array_equal(segmenter.features_of(rgb)["image"][0], to_network(rgb, segmenter.card))


def test_a_large_finding_or_none_is_not_looked_at_again() -> None:
    nothing = np.zeros((60, 80), np.float32)
    large = nothing.copy()
    large[10:40, 10:40] = 0.9
    assert _around_small(nothing) is None
    assert _around_small(large) is None
    at_the_edge = nothing.copy()
    at_the_edge[0:4, 76:80] = 0.9
    at_the_edge[50:52, 1:3] = 0.6  # less sure of itself: left as it is
    assert _around_small(at_the_edge) == (slice(0, 30), slice(50, 80))


def _drawn(*findings: tuple[slice, float]) -> ProbabilityMap:
    values = np.full((20, 60), 0.1, np.float32)
    for columns, value in findings:
        values[5:10, columns] = value
    return ProbabilityMap(values)


def test_beside_a_sure_finding_only_sure_ones_are_outlined() -> None:
    sure, doubtful, second = slice(2, 12), slice(20, 35), slice(40, 45)
    found = _drawn((sure, 0.95), (doubtful, 0.7), (second, 0.8))
    kept = _without_doubtful(found, threshold=0.8)
    expected = _drawn((sure, 0.95), (doubtful, 0.49), (second, 0.8))
    assert np.array_equal(kept.values, expected.values)
    # In an 8-bit map a doubted outline must not come back by rounding.
    assert round(0.49 * 255) / 255 < 0.5


def test_the_surest_finding_is_outlined_even_if_doubtful() -> None:
    best, other = slice(2, 12), slice(20, 35)
    assert np.array_equal(
        _without_doubtful(_drawn((best, 0.7), (other, 0.6)), threshold=0.8).values,
        _drawn((best, 0.7), (other, 0.49)).values,
    )
    for alone in (_drawn((best, 0.6)), _drawn()):
        assert _without_doubtful(alone, threshold=0.8) is alone


def test_a_careful_look_leaves_out_doubtful_outlines_by_the_cards_threshold(tmp_path: Path) -> None:
    rgb = np.zeros((SIZE * 8, SIZE * 8, 3), np.uint8)
    rgb[8:32, 8:32, 0], rgb[40:56, 40:64, 0] = 250, 200
    for threshold, second in ((0.7, True), (0.9, False)):
        segmenter = Segmenter.load(_write_model(tmp_path, gain=1.0, threshold=threshold))
        careful = segmenter.predict(rgb, careful=True).values >= 0.5
        assert careful[20, 20]
        assert careful[48, 52] == second
        assert (segmenter.predict(rgb).values >= 0.5)[48, 52], "one look draws all"


def test_a_damaged_weight_file_is_named(tmp_path: Path) -> None:
    path = _write_model(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ModelError, match=r"expected weights with SHA-256 .* damaged"):
        Segmenter.load(path)


def test_a_file_that_is_no_onnx_is_named(tmp_path: Path) -> None:
    path = _write_model(tmp_path)
    path.write_bytes(b"no model at all")
    card = json.loads((tmp_path / "tiny.json").read_text())
    card["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "tiny.json").write_text(json.dumps(card))
    with pytest.raises(ModelError, match="expected an ONNX model that this runtime can load"):
        Segmenter.load(path)


def test_a_file_whose_size_is_not_the_cards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected an input of 8×8 as its card says, found 16×16"):
        Segmenter.load(_write_model(tmp_path, size=16))


@pytest.mark.parametrize(
    ("picture", "found"),
    [
        (np.zeros((4, 4), np.uint8), r"uint8 \(4, 4\)"),
        (np.zeros((4, 4, 3), np.float32), "float32"),
        (np.zeros((0, 4, 3), np.uint8), r"\(0, 4, 3\)"),
        ("picture.png", "str"),
    ],
)
def test_a_wrong_picture_is_named(tmp_path: Path, picture: object, found: str) -> None:
    segmenter = Segmenter.load(_write_model(tmp_path))
    with pytest.raises(RecordError, match=found):
        segmenter.step(picture)  # type: ignore[arg-type]


def test_a_missing_provider_is_never_replaced_silently(tmp_path: Path) -> None:
    path = _write_model(tmp_path)
    with pytest.raises(ModelError, match="Provider cuda: expected an ONNX Runtime that has CUDAExecutionProvider"):
        Segmenter.load(path, provider="cuda")
    with pytest.raises(UsageError, match="Provider: expected one of cpu, openvino"):
        Segmenter.load(path, provider="abacus")


def test_openvino_gives_the_same(tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="the optional provider is not installed")
    path = _write_model(tmp_path)
    ours, theirs = Segmenter.load(path), Segmenter.load(path, provider="openvino")
    picture = np.random.default_rng(1).integers(0, 256, (10, 11, 3), np.uint8)
    for _ in range(2):
        assert np.allclose(ours.step(picture).values, theirs.step(picture).values, atol=1e-6)


def test_unknown_names_and_broken_cards_say_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="found 'nonesuch'"):
        find_card("nonesuch")
    with pytest.raises(MissingInput, match=r"absent\.onnx"):
        find_card(tmp_path / "absent.onnx")
    (tmp_path / "bad.json").write_text('{"name": 3}')
    with pytest.raises(ModelError, match="found a mistake at name"):
        load_card(tmp_path / "bad.json")
    (tmp_path / "alone.onnx").write_bytes(b"x")
    with pytest.raises(ModelError, match="expected its model card"):
        find_card(tmp_path / "alone.onnx")


def test_scores_take_the_place_of_those_of_the_same_data(tmp_path: Path) -> None:
    card = _write_model(tmp_path).with_suffix(".json")

    def score(data: str, value: float) -> Score:
        return Score(data=data, metric="Dice", value=value, protocol="as told")

    add_scores(card, [score("here", 0.5), score("there", 0.6)])
    add_scores(card, [score("here", 0.7)])
    assert [(one.data, one.value) for one in load_card(card).scores] == [("there", 0.6), ("here", 0.7)]
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".json", ".onnx"]
