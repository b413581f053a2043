"""Any folder of images and masks: `images/` and `masks/`, with sub-folders as clips; what `datasets convert` writes."""

from __future__ import annotations

from pathlib import Path

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.dataset import Dataset
from polypscope.datasets.files import ClipFiles, pair_by_stem
from polypscope.io.images import IMAGE_SUFFIXES
from polypscope.io.paths import list_files, list_folders
from polypscope.records.errors import MissingInput

__all__ = ["DATASET"]


class FolderPairs(Dataset):
    """A case for each first sub-folder of `images/`, a clip for each second one; files directly inside are stills."""

    empty_masks_are_normal = True
    card = DatasetCard(
        name="folder",
        title="any folder of images and masks",
        kind="stills or clips",
        frames=None,
        licence="yours",
        citation="",
        obtain="your own data, or the output of `polypscope datasets convert`",
        layout="ROOT/images/[CASE/[CLIP/]]NAME.png, ROOT/masks/[CASE/[CLIP/]]NAME.png",
        shipped_weights=False,
        remarks="An empty mask means a frame without polyp.",
    )

    def files(self, root: Path) -> list[ClipFiles]:
        images, masks = root / "images", root / "masks"
        if not images.is_dir() or not masks.is_dir():
            raise MissingInput(
                f"{root}: expected the folders 'images' and 'masks', found not both; "
                "see `polypscope datasets info folder`."
            )
        clips = []
        if list_files(images, IMAGE_SUFFIXES):
            clips.append(_clip(images, masks, root.name, root.name, is_video=False))
        for case in list_folders(images):
            if list_files(case, IMAGE_SUFFIXES):
                clips.append(_clip(case, masks / case.name, case.name, case.name, is_video=True))
            for clip in list_folders(case):
                clips.append(_clip(clip, masks / case.name / clip.name, case.name, clip.name, is_video=True))
        if not clips:
            raise MissingInput(f"{images}: expected images or folders of images, found none; check the path.")
        return clips


def _clip(images: Path, masks: Path, case: str, clip: str, *, is_video: bool) -> ClipFiles:
    frames, orphans = pair_by_stem(images, masks if masks.is_dir() else None)
    return ClipFiles(case, clip, frames, is_video, orphans)


DATASET = FolderPairs()
