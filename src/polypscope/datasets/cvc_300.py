"""CVC-300: the 60 stills that the field tests on."""

from __future__ import annotations

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.stills import StillPairs

__all__ = ["DATASET"]

DATASET = StillPairs(
    DatasetCard(
        name="cvc-300",
        title="CVC-300 (EndoScene test)",
        kind="stills",
        frames=60,
        licence="academic use",
        citation="Vázquez et al., A Benchmark for Endoluminal Scene Segmentation of Colonoscopy Images, 2017",
        obtain="part of EndoScene, and of the TestDataset folder that segmentation papers pass on",
        layout="ROOT/images/149.png, ROOT/masks/149.png",
        shipped_weights=False,
        remarks="574×500 pixels; evaluation only.",
    )
)
