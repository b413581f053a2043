"""Training from a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polypscope.training.config import DetectorConfig

__all__ = ["Training", "train"]


@dataclass(frozen=True)
class Training:
    """Where a finished run left its weights and its log."""

    weights: Path
    log: Path


def train(config: Path, *, out: Path | None = None, epochs: int | None = None) -> Training:
    """Train a segmenter from a TOML recipe; the same command resumes an interrupted run.

    A recipe of `kind = "detector"` trains a method of `polypscope detect` instead, in one go and without torch.

    A checkpoint is written after every epoch, and a run that was stopped and resumed ends with the weights of one
    that was not. `log.csv` has one row per epoch, and `predictions-NNN.png` shows what the model sees. Several
    processes, each with batches of its own: torchrun --nproc-per-node 2 -m polypscope train CONFIG.

    Parameters
    ----------
    config
        The recipe: data, model, optimiser and augmentation. `recipes/` has those of the shipped weights.
    out
        Folder for checkpoints and log, instead of the recipe's own.
    epochs
        Number of epochs, instead of the recipe's own.
    """
    from polypscope.records.errors import MissingExtra, UsageError
    from polypscope.training.config import DetectorConfig, load_recipe

    recipe = load_recipe(Path(config))
    if out is not None:
        recipe = recipe.model_copy(update={"out": Path(out).resolve()})
    if isinstance(recipe, DetectorConfig):
        return _train_detector(recipe, config, epochs)
    try:
        import importlib

        importlib.import_module("torch")
    except ImportError:
        raise MissingExtra.of("torch", extra="train", needed_for="training") from None
    from polypscope.runtime.console import say
    from polypscope.runtime.runlog import RunLog
    from polypscope.training.config import DepthConfig, MemoryConfig, TrainConfig
    from polypscope.training.depth import train_depth
    from polypscope.training.loop import train as run
    from polypscope.training.memory import train_memory
    from polypscope.training.processes import this_process

    if not isinstance(recipe, TrainConfig) and this_process().world > 1:
        raise UsageError(
            f"torchrun: expected a recipe for the image part, found kind '{recipe.kind}'; run it in one process."
        )
    if isinstance(recipe, MemoryConfig):
        if epochs is not None:
            raise UsageError(
                "--epochs: expected a recipe that has epochs, found one that counts steps; edit its steps."
            )
    elif epochs is not None and isinstance(recipe, TrainConfig):
        recipe = recipe.model_copy(update={"optimiser": recipe.optimiser.model_copy(update={"epochs": epochs})})
    elif epochs is not None:
        recipe = recipe.model_copy(update={"epochs": epochs})
    table = recipe.out / "log.csv"
    if isinstance(recipe, TrainConfig) and not this_process().first:  # the first process keeps the records of all
        return Training(run(recipe, say), table)
    with RunLog(recipe.out, "train", {"config": config, "out": recipe.out, "epochs": epochs}) as log:
        log.add_input(config)
        if isinstance(recipe, TrainConfig):
            weights = run(recipe, say)
        else:
            weights = train_memory(recipe, say) if isinstance(recipe, MemoryConfig) else train_depth(recipe, say)
        log.record(weights=str(weights))
    say(f"weights in {weights}, log in {table}")
    owner = " --depth SEGMENTER.onnx" if isinstance(recipe, DepthConfig) else ""
    say(f"next: polypscope export {weights} model.onnx{owner}")
    return Training(weights, table)


def _train_detector(recipe: DetectorConfig, config: Path, epochs: int | None) -> Training:
    """Train a method of the challenge; its log is run.json alone, for there are no epochs."""
    from polypscope.records.errors import UsageError
    from polypscope.runtime.console import say
    from polypscope.runtime.runlog import RunLog
    from polypscope.training.detector import train_detector

    if epochs is not None:
        raise UsageError("--epochs: expected a recipe that has epochs, found one of kind 'detector'; leave it out.")
    with RunLog(recipe.out, "train", {"config": config, "out": recipe.out}) as log:
        log.add_input(config)
        trained = train_detector(recipe, say)
        log.record(weights=str(trained))
    say(f"trained file: {trained}")
    say(f"next: polypscope detect INPUT OUT.csv --method {recipe.method} --trained {trained}")
    return Training(trained, recipe.out / "run.json")
