"""Kvasir-SEG: 1,000 stills with masks."""

from __future__ import annotations

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.stills import StillPairs

__all__ = ["DATASET"]

DATASET = StillPairs(
    DatasetCard(
        name="kvasir-seg",
        title="Kvasir-SEG",
        kind="stills",
        frames=1000,
        licence="research and education (Kvasir-SEG); the same images are in HyperKvasir under CC BY 4.0",
        citation="Jha et al., Kvasir-SEG: A Segmented Polyp Dataset, MMM 2020; Borgli et al., HyperKvasir, 2020",
        obtain="https://datasets.simula.no/kvasir-seg/",
        layout="ROOT/images/NAME.jpg, ROOT/masks/NAME.jpg (or .png)",
        shipped_weights=True,
        remarks="The field holds out 100 named images for testing. Patients are not known: one may be in both parts.",
    )
)
