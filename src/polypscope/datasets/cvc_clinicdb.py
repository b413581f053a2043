"""CVC-ClinicDB (CVC-612): 612 frames of 29 sequences, the still training set of MICCAI 2015."""

from __future__ import annotations

from pathlib import Path

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.files import ClipFiles, FrameFiles, pair_by_stem
from polypscope.datasets.stills import StillPairs, strip_mask_affix
from polypscope.io.paths import list_folders

__all__ = ["DATASET", "LAST_FRAMES"]

LAST_FRAMES = (
    25, 50, 67, 78, 103, 126, 151, 177, 199, 205, 227, 252, 277, 297, 317, 342, 363, 383, 408, 428, 447, 466, 478,
    503, 528, 546, 571, 591, 612,
)  # fmt: skip
"""Number of the last frame of each sequence, in the numbering 1 to 612 of the release."""


class CvcClinicDb(StillPairs):
    """By sequence: from folders `seqNN`, or from the original's flat folders by frame number."""

    def files(self, root: Path) -> list[ClipFiles]:
        sequences = [folder for folder in list_folders(root) if (folder / "images").is_dir()]
        if sequences:
            clips = []
            for folder in sequences:
                frames, orphans = pair_by_stem(folder / "images", folder / "masks")
                clips.append(ClipFiles(folder.name, folder.name, frames, is_video=True, orphans=orphans))
            return clips
        frames, orphans = pair_by_stem(*self.folders(root), mask_stem=strip_mask_affix)
        grouped: dict[int, list[FrameFiles]] = {}
        for frame in frames:
            grouped.setdefault(_sequence(frame.name), []).append(frame)
        return [
            ClipFiles(f"seq{number:02d}", f"seq{number:02d}", tuple(members), True, orphans if i == 0 else ())
            for i, (number, members) in enumerate(sorted(grouped.items()))
        ]


def _sequence(name: str) -> int:
    """Sequence of a frame by its number, from 1; 0 for a name that is no number of the release."""
    if not name.isdecimal() or not 1 <= int(name) <= LAST_FRAMES[-1]:
        return 0
    return next(i for i, last in enumerate(LAST_FRAMES, start=1) if int(name) <= last)


DATASET = CvcClinicDb(
    DatasetCard(
        name="cvc-clinicdb",
        title="CVC-ClinicDB (CVC-612)",
        kind="sampled sequences",
        frames=612,
        licence="open for academic use",
        citation="Bernal et al., WM-DOVA maps for accurate polyp highlighting in colonoscopy, CMIG 2015",
        obtain="https://polyp.grand-challenge.org/CVCClinicDB/",
        layout="ROOT/seq01/{images,masks}/001.jpg; or ROOT/Original/1.tif, ROOT/Ground Truth/1.tif",
        shipped_weights=False,
        remarks="384×288 pixels; frames of a sequence are sampled, so time stamps are not real. Split by sequence.",
    )
)
