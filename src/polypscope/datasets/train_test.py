"""The Train/Test folders that still-image segmentation papers share (PraNet and its followers)."""

from __future__ import annotations

from pathlib import Path

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.dataset import Dataset
from polypscope.datasets.files import ClipFiles, existing, pair_by_stem
from polypscope.datasets.stills import IMAGE_FOLDERS, MASK_FOLDERS
from polypscope.io.paths import list_folders
from polypscope.records.errors import MissingInput

__all__ = ["DATASET", "TEST_COUNTS", "TRAIN_COUNT"]

TRAIN_COUNT = 1450
TEST_COUNTS = {"CVC-300": 60, "CVC-ClinicDB": 62, "CVC-ColonDB": 380, "ETIS-LaribPolypDB": 196, "Kvasir": 100}


class TrainTest(Dataset):
    """One case for the training folder, one for each test set; `metadata["split"]` tells them apart."""

    card = DatasetCard(
        name="train-test",
        title="TrainDataset / TestDataset",
        kind="stills",
        frames=TRAIN_COUNT + sum(TEST_COUNTS.values()),
        licence="as of its parts: Kvasir-SEG, CVC-ClinicDB, CVC-300, CVC-ColonDB, ETIS-Larib",
        citation="Fan et al., PraNet: Parallel Reverse Attention Network for Polyp Segmentation, MICCAI 2020",
        obtain="https://github.com/DengPingFan/PraNet",
        layout="ROOT/TrainDataset/{image,mask}/1.png, ROOT/TestDataset/{CVC-300,…}/{images,masks}/149.png",
        shipped_weights=False,
        remarks="900 Kvasir and 550 ClinicDB images train; 60, 62, 380, 196 and 100 test.",
    )

    def files(self, root: Path) -> list[ClipFiles]:
        clips = []
        if (root / "TrainDataset").is_dir():
            clips.append(_part(root / "TrainDataset", "TrainDataset", "TrainDataset"))
        if (root / "TestDataset").is_dir():
            clips += [_part(folder, folder.name, "TestDataset") for folder in list_folders(root / "TestDataset")]
        if not clips:
            raise MissingInput(
                f"{root}: expected TrainDataset or TestDataset, found neither; see `datasets info train-test`."
            )
        return clips


def _part(folder: Path, name: str, split: str) -> ClipFiles:
    images, masks = existing(folder, IMAGE_FOLDERS), existing(folder, MASK_FOLDERS)
    if images is None or masks is None:
        raise MissingInput(f"{folder}: expected the folders 'images' and 'masks', found others; check the unpacking.")
    frames, orphans = pair_by_stem(images, masks)
    return ClipFiles(name, name, frames, is_video=False, orphans=orphans, split=split)


DATASET = TrainTest()
