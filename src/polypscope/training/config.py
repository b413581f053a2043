"""A training run as data: the TOML file of `polypscope train`, checked at the border."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from polypscope.io.paths import read_text
from polypscope.records.errors import MissingInput, UsageError
from polypscope.runtime.cards import list_cards
from polypscope.training.augment import AugmentSpec


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Table):
    """Where pictures come from: a data set that an adapter reads, or a bare folder.

    Without `adapter`, one folder with `images/` and `masks/`, or for windows a part of SUN-SEG with `Frame/<clip>/` and
    `GT/<clip>/`. With it, the whole data set at `root` or the named part of it; frames without polyp are taken too.
    """

    root: Path
    layout: Literal["pairs", "sun-seg"] = "pairs"
    adapter: str | None = Field(default=None, description="a name of `polypscope datasets list`")
    cases: tuple[str, ...] = Field(default=(), description="only these cases of the adapter: centres, patients, ...")
    splits: tuple[str, ...] = Field(default=(), description="only these splits of the adapter; may hold *")
    weight: float = Field(default=1.0, gt=0, description="how often its pictures are drawn, relative to the others")
    exclude: Path | None = Field(default=None, description="text file with one stem per line to leave out")
    only: Path | None = Field(default=None, description="text file with the only stems to take")
    name: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Source:
        if self.adapter is None and (self.cases or self.splits):
            raise ValueError("expected `adapter` beside `cases` or `splits`, which only an adapter knows")
        if self.adapter is not None and self.layout != "pairs":
            raise ValueError("expected `adapter` or `layout`, not both")
        return self

    @property
    def label(self) -> str:
        """What this source is called in logs."""
        return self.name or self.root.name

    def under(self, base: Path) -> Source:
        """The same with paths that do not depend on the working folder."""
        update = {name: _absolute(getattr(self, name), base) for name in ("root", "exclude", "only")}
        return self.model_copy(update=update)


class Model(_Table):
    name: str = "pns_plus_stream"
    arguments: dict[str, Any] = {}
    imagenet: bool = True


class Optimiser(_Table):
    epochs: int = Field(default=12, gt=0)
    batch: int = Field(default=16, gt=0)
    rate: float = Field(default=1e-3, gt=0)
    encoder_rate: float = Field(default=0.5, description="learning rate of the encoder, relative to `rate`")
    weight_decay: float = 0.01
    algorithm: Literal["adamw", "adam"] = "adamw"
    schedule: Literal["one-cycle", "cosine", "constant"] = "one-cycle"
    warm_up: float = Field(default=0.1, ge=0, lt=1, description="share of the run spent rising")
    ema: float = Field(default=0.998, ge=0, lt=1)
    clip: float = Field(default=2.0, gt=0, description="largest norm of the gradient")
    clamp: float | None = Field(default=None, description="largest value of a gradient, instead of `clip`")
    loss: Literal["structure", "bce", "presence"] = "structure"
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="what networks compute in; auto: bfloat16 where the processor has it"
    )


class Simulated(_Table):
    """Simulated frames in every batch, which also teach the depth head and, with all others, the presence head."""

    folder: Path = Field(description="rendered clips; those that are missing are rendered first")
    shards: int = Field(default=1100, gt=0, description="simulated sequences to render, three clips each")
    share: float = Field(default=0.4, gt=0, lt=1, description="share of each batch that is simulated")
    depth_weight: float = Field(default=1.0, ge=0)
    presence_weight: float = Field(default=0.1, ge=0)


class TrainConfig(_Table):
    """Everything that decides a run's result."""

    out: Path
    kind: Literal["images"] = "images"
    seed: int = 0
    sizes: tuple[int, ...] = (352,)
    cache: Path | None = None
    cache_side_px: int = 400
    workers: int = 1
    threads: int = 2
    window: int | None = Field(default=None, description="consecutive frames per item, for networks that take clips")
    window_size: tuple[int, int] = Field(default=(256, 448), description="height and width of the frames of a window")
    length: int | None = Field(default=None, description="pictures per epoch; all of them if not given")
    model: Model = Model()
    start: Path | None = Field(
        default=None,
        description="where to start: `weights.pt` of an earlier run, or name or .onnx file of an exported model",
    )
    frozen_norms: bool = Field(default=False, description="keep the running statistics of the start's batch norms")
    simulated: Simulated | None = None
    optimiser: Optimiser = Optimiser()
    augment: AugmentSpec = AugmentSpec()
    train: tuple[Source, ...]
    validate_on: tuple[Source, ...] = ()
    validate_size: int = 352


class MemoryConfig(_Table):
    """What comes after the image part: the memory, on the frozen rest."""

    kind: Literal["memory"]
    out: Path
    start: Path = Field(description="`weights.pt` of the image part")
    simulated: Path = Field(description="folder for rendered clips")
    shards: int = Field(default=1100, gt=0, description="simulated sequences to render, three clips each")
    simulated_share: float = Field(default=0.6, ge=0, le=1, description="share of simulated clips; the rest is stills")
    cache: Path | None = None
    cache_side_px: int = 400
    seed: int = 3
    steps: int = Field(default=600, gt=0)
    clips: int = Field(default=4, gt=0)
    rate: float = Field(default=3e-3, gt=0)
    trust: float = Field(default=1.0, gt=0, description="factor on what each remembered frame counts, after training")
    workers: int = 1
    threads: int = 2
    train: tuple[Source, ...]


class DepthConfig(_Table):
    """The depth head alone: a branch of the frozen segmenter's encoder, taught by simulated frames."""

    kind: Literal["depth"]
    out: Path
    start: Path = Field(
        description="segmenter to branch from: name of a shipped model, .onnx file, or checkpoint of its training"
    )
    head: Path | None = Field(
        default=None,
        description="depth head to go on from: name of a shipped one, .onnx file, or depth.pt of a training",
    )
    reads: Path | None = Field(
        default=None,
        description="exported segmenter that the head will run beside, such as the 8-bit form of `start`: it is taught "
        "with the features of that one",
    )
    encoder: str = "lite1"
    simulated: Path = Field(description="folder for rendered frames, 6 MB per sequence")
    shards: int = Field(default=3000, gt=0, description="simulated sequences to render, twelve frames each")
    held_out: int = Field(default=40, ge=0, description="the first of them, which only judge")
    seen: int = Field(default=0, ge=0, description="the next of them, left out: an earlier stage learnt from them")
    seed: int = 5
    epochs: int = Field(default=12, gt=0)
    length: int = Field(default=8000, gt=0, description="frames of an epoch, after each of which a run can be resumed")
    batch: int = Field(default=16, gt=0)
    rate: float = Field(default=1e-3, gt=0)
    zoomed: float = Field(
        default=0.4, ge=0, le=1, description="share of frames that may be cut to a part; half of them are"
    )
    before: float = Field(
        default=0,
        ge=0,
        lt=1,
        description="share of the weights that a run went on from in those that it writes: where further training "
        "hardly helps, the mean of both can err less on new colons than either",
    )
    threads: int = 2


class DetectorConfig(_Table):
    """A method of the MICCAI 2015 challenge that learns without torch, and what it learns from."""

    kind: Literal["detector"]
    method: str = Field(description="a trainable method of `polypscope detect`")
    out: Path
    every: int = Field(default=1, gt=0, description="take only every so many-th picture of each source")
    train: tuple[Source, ...] = Field(min_length=1)


Recipe = TrainConfig | MemoryConfig | DepthConfig | DetectorConfig
KINDS: dict[str, type[Recipe]] = {
    "images": TrainConfig,
    "memory": MemoryConfig,
    "depth": DepthConfig,
    "detector": DetectorConfig,
}


def load_config(path: Path) -> TrainConfig:
    """Read and check a TOML recipe; relative paths in it are relative to the file."""
    config = load_recipe(path)
    if not isinstance(config, TrainConfig):
        raise UsageError(f"Training recipe {path}: expected one of the image part, found kind '{config.kind}'.")
    return config


def load_recipe(path: Path) -> Recipe:
    """Read and check a TOML recipe of any kind."""
    if not path.is_file():
        raise MissingInput(f"Training recipe: expected a TOML file, found nothing at {path}.")
    try:
        raw = tomllib.loads(read_text(path))
        config = KINDS.get(str(raw.get("kind")), TrainConfig).model_validate(raw)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"Training recipe {path}: expected TOML, found a mistake: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"Training recipe {path}, {where}: {first['msg']}, found {first['input']!r}.") from error
    return _resolved(config, path.parent)


def _absolute(path: Path | None, base: Path) -> Path | None:
    return None if path is None else (base / path.expanduser()).resolve()


def _weights(path: Path | None, base: Path) -> Path | None:
    """The path of a file, or of the exported model that ships under this name."""
    shipped = {Path(card.name): card.weights_path for card in list_cards()}
    return shipped[path] if path in shipped else _absolute(path, base)


def _resolved(config: Recipe, base: Path) -> Recipe:
    update: dict[str, Any] = {
        name: resolve(getattr(config, name), base)
        for resolve, names in ((_absolute, ("out", "cache", "features")), (_weights, ("start", "head", "reads")))
        for name in names
        if hasattr(config, name)
    }
    if isinstance(config, TrainConfig):
        if config.simulated is not None:
            update["simulated"] = config.simulated.model_copy(
                update={"folder": _absolute(config.simulated.folder, base)}
            )
        update["validate_on"] = tuple(entry.under(base) for entry in config.validate_on)
    elif not isinstance(config, DetectorConfig):
        update["simulated"] = _absolute(config.simulated, base)
    if not isinstance(config, DepthConfig):
        update["train"] = tuple(entry.under(base) for entry in config.train)
    return config.model_copy(update=update)
