"""ASU-Mayo Clinic Colonoscopy Video Database: videos with a mask for each frame, the video set of MICCAI 2015."""

from __future__ import annotations

import re
from pathlib import Path

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.dataset import Dataset
from polypscope.datasets.files import ClipFiles, FrameFiles
from polypscope.io.images import IMAGE_SUFFIXES
from polypscope.io.paths import list_files, list_folders
from polypscope.io.video import VIDEO_SUFFIXES, count_frames
from polypscope.records.errors import MissingInput

__all__ = ["DATASET"]

_MASK_FOLDERS = ("GT", "masks", "Masks", "GroundTruth", "Ground Truth")


class AsuMayo(Dataset):
    """A case for each video; masks in a folder of the video's name, numbered like the frames.

    Videos whose name begins with "np" (no polyp) are negative without masks; others without masks are unlabelled.
    """

    empty_masks_are_normal = True
    card = DatasetCard(
        name="asu-mayo",
        title="ASU-Mayo Clinic Colonoscopy Video Database",
        kind="videos",
        frames=None,
        licence="on request, for research",
        citation="Tajbakhsh et al., Automated Polyp Detection in Colonoscopy Videos Using Shape and Context "
        "Information, IEEE TMI 2016",
        obtain="https://polyp.grand-challenge.org/AsuMayo/",
        layout="ROOT/[PART/]wp_2.wmv with ROOT/[PART/]GT/wp_2/NUMBER.tif (or masks/); ROOT/[PART/]np_5.wmv",
        shipped_weights=False,
        remarks="20 training videos (10 with a polyp) and 18 test videos; masks of frames without polyp are black.",
    )

    def files(self, root: Path) -> list[ClipFiles]:
        clips = [
            self._video(path, folder.name if folder != root else "", root)
            for folder in (root, *list_folders(root))
            for path in list_files(folder, VIDEO_SUFFIXES)
        ]
        if not clips:
            raise MissingInput(
                f"{root}: expected videos (such as wp_2.wmv) of ASU-Mayo, found none; "
                "see `polypscope datasets info asu-mayo`."
            )
        return clips

    def _video(self, path: Path, part: str, root: Path) -> ClipFiles:
        masks_folder = next(
            (
                parent / name / path.stem
                for parent in (path.parent, root)
                for name in _MASK_FOLDERS
                if (parent / name / path.stem).is_dir()
            ),
            None,
        )
        count = count_frames(path)
        negative = masks_folder is None and path.stem.lower().startswith("np")
        masks = {} if masks_folder is None else _by_frame(masks_folder, count)
        frames = tuple(FrameFiles(str(i), None, masks.pop(i, None), negative=negative) for i in range(count))
        return ClipFiles(
            path.stem,
            path.stem,
            frames,
            is_video=True,
            orphans=tuple(masks.values()),
            video=path,
            split=part,
            unlabelled=masks_folder is None and not negative,
        )


def _by_frame(folder: Path, count: int) -> dict[int, Path]:
    """Masks by frame from 0. Numbers in names start at 0 or at 1: at 1 when there is no 0."""
    numbered: dict[int, Path] = {}
    for path in list_files(folder, IMAGE_SUFFIXES):
        numbers = re.findall(r"\d+", path.stem)
        if numbers:
            numbered[int(numbers[-1])] = path
    first = 0 if 0 in numbered else 1
    return {number - first: path for number, path in sorted(numbered.items())}


DATASET = AsuMayo()
