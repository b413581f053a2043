"""All architectures by name: a plain function per model, so that a recipe names what it trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from polypscope.models import pns_plus, pranet
from polypscope.models.cumed import CUMED
from polypscope.models.ensemble import Ensemble
from polypscope.models.ous import OUS
from polypscope.models.pns_plus_stream import StreamSegmenter
from polypscope.models.snu import SNU
from polypscope.models.unet import UNet, UNetPlusPlus
from polypscope.models.uns_uclan import UNSUCLAN
from polypscope.models.weights import NameMap
from polypscope.records.errors import UsageError


@dataclass(frozen=True)
class Entry:
    """One architecture: how to make it, how its input is scaled, and how published checkpoints name its parts.

    clip: takes windows of frames; presence: learns from whole pictures whether there is a polyp, and not from masks.
    """

    build: Callable[..., nn.Module]
    paper: str
    clip: bool = False
    presence: bool = False
    normalisation: str = "(rgb - 127) / 128"
    authors_names: NameMap = ()


MODELS: dict[str, Entry] = {
    "cumed": Entry(CUMED, "CUMED in Bernal et al. 2017, after Chen et al. 2016"),
    "ensemble": Entry(Ensemble, "Hansen and Salamon 1990, of members like pns_plus_stream, for single pictures"),
    "ous": Entry(OUS, "OUS in Bernal et al. 2017, after Krizhevsky et al. 2012"),
    "pns_plus": Entry(
        pns_plus.PNSPlus,
        "Ji et al. 2022, Video Polyp Segmentation",
        clip=True,
        normalisation="rgb / 255",
        authors_names=pns_plus.AUTHORS_NAMES,
    ),
    "pns_plus_stream": Entry(StreamSegmenter, "Ji et al. 2022, made causal, light and streaming"),
    "pranet": Entry(pranet.PraNet, "Fan et al. 2020, PraNet", authors_names=pranet.AUTHORS_NAMES),
    "snu": Entry(SNU, "SNU in Bernal et al. 2017, after Szegedy et al. 2015", presence=True),
    "unet": Entry(UNet, "Ronneberger et al. 2015, U-Net"),
    "unet_plus_plus": Entry(UNetPlusPlus, "Zhou et al. 2018, UNet++"),
    "uns_uclan": Entry(UNSUCLAN, "UNS-UCLAN in Bernal et al. 2017"),
}


def create(name: str, **arguments: Any) -> nn.Module:
    """The model called `name`, freshly initialised."""
    if name not in MODELS:
        raise UsageError(f"Model: expected one of {', '.join(sorted(MODELS))}, found {name!r}.")
    try:
        return MODELS[name].build(**arguments)
    except TypeError as error:
        raise UsageError(f"Model {name}: expected its own arguments, found a wrong one: {error}.") from None
