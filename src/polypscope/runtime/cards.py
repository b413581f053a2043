"""Model cards: what a weight file is, how its input is prepared, what it was trained on and what it scores.

A card is a JSON file beside the ONNX file. Pre-processing is data of the weights, so that training, torch and ONNX
prepare a picture alike. No torch is needed to read one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from polypscope.records.errors import MissingInput, ModelError
from polypscope.runtime.runlog import sha256

__all__ = [
    "WEIGHTS",
    "InputSpec",
    "ModelCard",
    "Score",
    "TrainingData",
    "add_scores",
    "find_card",
    "list_cards",
    "load_card",
]

WEIGHTS = Path(__file__).parent / "weights"
"""The folder of the weights that ship."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InputSpec(_Table):
    """How a picture becomes the network's input: squeezed to `width` × `height`, RGB, `(value - mean) / std`.

    The normalisation is part of the ONNX graph, whose `image` input is uint8 (N, height, width, 3).
    """

    width: int = Field(gt=0)
    height: int = Field(gt=0)
    mean: float = 127.0
    std: float = 128.0
    interpolation: Literal["area", "linear"] = "area"


class TrainingData(_Table):
    """One source of training pictures."""

    name: str
    images: int
    licence: str
    citation: str = ""


class Score(_Table):
    """One measured figure, with the rule by which it was measured."""

    data: str
    metric: str
    value: float
    protocol: str
    images: int | None = None
    used_to_choose: bool = Field(default=False, description="the model was chosen by this figure")


class ModelCard(_Table):
    """Everything a user should know before trusting a weight file."""

    name: str
    kind: Literal["segmenter", "depth"]
    architecture: str
    summary: str
    file: str
    sha256: str
    bytes: int
    storage: Literal["float32", "float16", "int8"] = Field(
        default="float32", description="how weights are stored; all but int8 are computed in float32"
    )
    input: InputSpec
    streaming: bool = False
    segmenter: str = Field(default="", description="of a depth head: SHA-256 of the segmenter whose features it reads")
    made_from: str = Field(default="", description="of an 8-bit file: SHA-256 of the file that it was made from")
    threshold: float = Field(default=0.5, ge=0, le=1)
    licence: str = "Apache-2.0"
    data: tuple[TrainingData, ...] = ()
    recipe: str = ""
    training_time: str = ""
    scores: tuple[Score, ...] = ()
    speed: str = ""
    fails_on: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    interim: bool = Field(default=False, description="a stand-in until better weights ship")
    path: Path | None = Field(default=None, exclude=True, description="where the card was read")

    def reads(self, segmenter: ModelCard) -> bool:
        """Whether this depth head was trained on the features of that segmenter, or of the file it was made from."""
        return self.segmenter in {segmenter.sha256, segmenter.made_from} - {""}

    @property
    def weights_path(self) -> Path:
        """The ONNX file, beside its card."""
        if self.path is None:
            raise ModelError(f"Model {self.name}: expected a card that was read from a file, found one made in memory.")
        return self.path.parent / self.file

    def check_file(self) -> Path:
        """The ONNX file, after its hash was compared with the card's."""
        path = self.weights_path
        if not path.is_file():
            raise ModelError(
                f"Model {self.name}: expected its weights at {path}, found nothing there; "
                "reinstall the package or export the model again."
            )
        found = sha256(path)
        if found != self.sha256:
            raise ModelError(
                f"Model {self.name}: expected weights with SHA-256 {self.sha256[:12]}…, found {found[:12]}… in {path}; "
                "the file is damaged or was changed: reinstall the package or export the model again."
            )
        return path


def load_card(path: Path | str) -> ModelCard:
    """Read one card."""
    path = Path(path)
    if not path.is_file():
        raise MissingInput(f"{path}: expected a model card (JSON), found nothing there; check the path.")
    try:
        card = ModelCard.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
        where = ".".join(str(part) for part in first["loc"])
        raise ModelError(
            f"{path}: expected a model card, found a mistake at {where or 'its start'}: {first['msg']}."
        ) from None
    return card.model_copy(update={"path": path})


def add_scores(path: Path, scores: Sequence[Score]) -> None:
    """Write scores into a card, in place of those that it has of the same data."""
    card = load_card(path)
    told = {score.data for score in scores}
    kept = [score for score in card.scores if score.data not in told]
    partial = Path(path).with_suffix(".json.part")
    partial.write_text(card.model_copy(update={"scores": (*kept, *scores)}).model_dump_json(indent=2) + "\n", "utf-8")
    partial.replace(path)


def list_cards() -> list[ModelCard]:
    """Cards of the weights that ship, by name."""
    return [load_card(path) for path in sorted(WEIGHTS.glob("*.json"))]


def find_card(name_or_path: str | Path) -> ModelCard:
    """The card of a shipped model, or of an ONNX file or card that is given by path."""
    text = str(name_or_path)
    if text.endswith((".onnx", ".json")):
        path = Path(name_or_path)
        if not path.exists():
            raise MissingInput(f"{path}: expected a model file, found nothing there; check the path.")
        card_path = path.with_suffix(".json")
        if not card_path.is_file():
            raise ModelError(
                f"{path}: expected its model card at {card_path}, found nothing there; `polypscope export` writes both."
            )
        return load_card(card_path)
    path = WEIGHTS / f"{text}.json"
    if not path.is_file():
        names = ", ".join(card.name for card in list_cards()) or "none that ship"
        raise ModelError(f"Model: expected one of {names}, or a path to an .onnx file, found {text!r}.")
    return load_card(path)
