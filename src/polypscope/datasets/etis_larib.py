"""ETIS-Larib: 196 stills with 208 polyps, the still test set of MICCAI 2015."""

from __future__ import annotations

from pathlib import Path

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.files import existing
from polypscope.datasets.stills import StillPairs

__all__ = ["DATASET"]


class EtisLarib(StillPairs):
    """Also accepts the folder names of the original release."""

    def folders(self, root: Path) -> tuple[Path, Path]:
        images = existing(root, ("ETIS-LaribPolypDB", "images", "Original"))
        masks = existing(root, ("Ground Truth", "masks"))
        return (images, masks) if images is not None and masks is not None else super().folders(root)


DATASET = EtisLarib(
    DatasetCard(
        name="etis-larib",
        title="ETIS-Larib Polyp DB",
        kind="stills",
        frames=196,
        licence="academic use",
        citation="Silva et al., Toward embedded detection of polyps in WCE images for early diagnosis of colorectal "
        "cancer, IJCARS 2014",
        obtain="https://polyp.grand-challenge.org (MICCAI 2015 sub-challenge)",
        layout="ROOT/images/1.png, ROOT/masks/1.png; or ROOT/ETIS-LaribPolypDB/1.tif, ROOT/Ground Truth/p1.tif",
        shipped_weights=False,
        remarks="208 polyps in 196 stills of 1225×966 pixels: separate regions of a mask count as separate polyps.",
    )
)
