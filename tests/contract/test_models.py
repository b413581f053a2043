"""Every model through one test: forward, backward, state-dict round trip, ONNX parity."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="models need the train extra")
ort = pytest.importorskip("onnxruntime", reason="inference needs onnxruntime")

from polypscope.models.registry import MODELS, create  # noqa: E402
from polypscope.records.errors import UsageError  # noqa: E402

SMALL = {
    "cumed": {"width": 4, "features": 4},
    "ensemble": {"encoders": ["lite0", "lite0"]},
    "ous": {"width": 0.03},
    "pns_plus_stream": {"encoder": "lite0"},
    "snu": {"width": 0.03, "size": 64},
    "unet": {"width": 4},
    "unet_plus_plus": {"width": 4},
    "uns_uclan": {"width": 4, "hidden": 8},
}
CASES = (
    [(name, SMALL.get(name, {})) for name in MODELS]
    + [("pns_plus", {"strategy": strategy, "norm_size": None}) for strategy in ("", "L", "L→L", "L→G", "G→G")]
    + [("pns_plus", {"groups": groups, "norm_size": None}) for groups in (1, 8)]
    + [("cumed", {"encoder": "lite0"})]
)


def _input(name: str) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.rand(1, 3, 3, 64, 96) if MODELS[name].clip else torch.rand(2, 3, 64, 96)


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=[f"{n}-{a}" for n, a in CASES])
def test_forward_backward_and_round_trip(name: str, arguments: dict) -> None:
    torch.manual_seed(0)
    model = create(name, **arguments)
    x = _input(name)
    model.train()
    outputs = model(x)
    total = sum(level.float().square().mean() for level in (outputs if isinstance(outputs, list) else [outputs]))
    total.backward()
    lost = [key for key, value in model.named_parameters() if value.requires_grad and value.grad is None]
    assert not lost, "parameters without a gradient"
    model.eval()
    with torch.no_grad():
        first = model(x)
        expected = (1, 2, 1, 64, 96) if MODELS[name].clip else (2, 1, 64, 96)
        assert tuple(first.shape) == expected
        torch.manual_seed(5)
        twin = create(name, **arguments).eval()
        twin.load_state_dict(model.state_dict())
        assert torch.equal(twin(x), first)


@pytest.mark.parametrize("name", MODELS)
def test_onnx_equals_torch(name: str) -> None:
    torch.manual_seed(0)
    model = create(name, **SMALL.get(name, {})).eval()
    x = _input(name)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's exporter warns of its own future
        torch.onnx.export(model, (x,), buffer, input_names=["x"], output_names=["y"], opset_version=18, dynamo=False)
    session = ort.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = model(x).numpy()
    found = session.run(["y"], {"x": x.numpy()})[0]
    assert np.abs(found - expected).max() < 1e-4 * max(1.0, np.abs(expected).max())


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(UsageError, match="found 'nnunet'"):
        create("nnunet")
    with pytest.raises(UsageError, match="Strategy: expected one of L, LL, LG, GG, GL, found 'X'"):
        create("pns_plus", strategy="X")
    with pytest.raises(UsageError, match="Model unet: expected its own arguments"):
        create("unet", depth=3)
