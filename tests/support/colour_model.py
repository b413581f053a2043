"""A real ONNX segmenter of the synthetic scenes, with a state, made in a few lines: blue or green minus red."""

from __future__ import annotations

import json
from pathlib import Path

from polypscope.runtime.cards import InputSpec, ModelCard
from polypscope.runtime.runlog import sha256

SIDE = 96


def write_colour_model(folder: Path) -> Path:
    """Write colour.onnx and its card into a folder; returns the path of the model."""
    import onnx
    from onnx import TensorProto, helper

    shape = [None, 1, SIDE, SIDE]
    constants = {
        "scale": helper.make_tensor("scale", TensorProto.FLOAT, [], [1 / 80]),
        "half": helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
        "new": helper.make_tensor("new", TensorProto.FLOAT, [], [0.7]),
        "old": helper.make_tensor("old", TensorProto.FLOAT, [], [0.3]),
        "zero": helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
        "one": helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]),
        "sizes": helper.make_tensor("sizes", TensorProto.INT64, [3], [1, 1, 1]),
    }
    nodes = [
        helper.make_node("Cast", ["image"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["float"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Split", ["planes", "sizes"], ["r", "g", "b"], axis=1),
        helper.make_node("Max", ["g", "b"], ["top"]),
        helper.make_node("Sub", ["top", "r"], ["difference"]),
        helper.make_node("Mul", ["difference", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "half"], ["shifted"]),
        helper.make_node("Clip", ["shifted", "zero", "one"], ["now"]),
        helper.make_node("Mul", ["now", "new"], ["now_part"]),
        helper.make_node("Mul", ["state_mean", "old"], ["old_part"]),
        helper.make_node("Add", ["now_part", "old_part"], ["probability"]),
        helper.make_node("Identity", ["probability"], ["next_mean"]),
    ]
    graph = helper.make_graph(
        nodes,
        "colour",
        [
            helper.make_tensor_value_info("image", TensorProto.UINT8, [None, SIDE, SIDE, 3]),
            helper.make_tensor_value_info("state_mean", TensorProto.FLOAT, shape),
        ],
        [
            helper.make_tensor_value_info("probability", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("next_mean", TensorProto.FLOAT, shape),
        ],
        list(constants.values()),
    )
    path = folder / "colour.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    card = ModelCard(
        name="colour",
        kind="segmenter",
        architecture="colour difference",
        summary="Finds the discs of the synthetic scenes.",
        file=path.name,
        sha256=sha256(path),
        bytes=path.stat().st_size,
        input=InputSpec(width=SIDE, height=SIDE),
        streaming=True,
    )
    path.with_suffix(".json").write_text(json.dumps(card.model_dump(mode="json")), encoding="utf-8")
    return path
