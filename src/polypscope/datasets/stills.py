"""Folders of still images with a mask each: the layout that most small data sets share."""

from __future__ import annotations

from pathlib import Path

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.dataset import Dataset
from polypscope.datasets.files import ClipFiles, existing, pair_by_stem
from polypscope.records.errors import MissingInput

__all__ = ["IMAGE_FOLDERS", "MASK_FOLDERS", "StillPairs", "strip_mask_affix"]

IMAGE_FOLDERS = ("images", "image", "Original", "original", "Images", "PNG/Original", "TIF/Original")
MASK_FOLDERS = ("masks", "mask", "Ground Truth", "GroundTruth", "GT", "Masks", "PNG/Ground Truth", "TIF/Ground Truth")


def strip_mask_affix(stem: str) -> str:
    """The image's stem for the mask names in use: "p12" (CVC, ETIS) and "x_mask" (PolypGen, others).

    >>> strip_mask_affix("p12"), strip_mask_affix("100H0050_mask"), strip_mask_affix("polyp_1")
    ('12', '100H0050', 'polyp_1')
    """
    if stem.startswith("p") and stem[1:].isdigit():
        return stem[1:]
    return stem.removesuffix("_mask")


class StillPairs(Dataset):
    """`root/images` and `root/masks` (or the original's folder names), one case in all: no patient is known."""

    def __init__(self, card: DatasetCard) -> None:
        self.card = card

    def files(self, root: Path) -> list[ClipFiles]:
        frames, orphans = pair_by_stem(*self.folders(root), mask_stem=strip_mask_affix)
        return [ClipFiles(self.card.name, self.card.name, frames, is_video=False, orphans=orphans)]

    def folders(self, root: Path) -> tuple[Path, Path]:
        """The folders of images and of masks under `root`."""
        images, masks = existing(root, IMAGE_FOLDERS), existing(root, MASK_FOLDERS)
        if images is None or masks is None:
            found = ", ".join(sorted(path.name for path in root.iterdir())[:8]) or "nothing"
            raise MissingInput(
                f"{root}: expected the folders 'images' and 'masks' of {self.card.title}, found {found}; "
                f"see `polypscope datasets info {self.card.name}`."
            )
        return images, masks
