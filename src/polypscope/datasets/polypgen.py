"""PolypGen: 1,537 stills of six centres."""

from __future__ import annotations

from pathlib import Path

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.dataset import Dataset
from polypscope.datasets.files import ClipFiles, pair_by_stem
from polypscope.datasets.stills import strip_mask_affix
from polypscope.records.errors import MissingInput

__all__ = ["CENTRES", "DATASET"]

CENTRES = ("C1", "C2", "C3", "C4", "C5", "C6")


class PolypGen(Dataset):
    """One case per centre: frames of a centre resemble each other, so a split by frame flatters."""

    empty_masks_are_normal = True
    card = DatasetCard(
        name="polypgen",
        title="PolypGen (single frames)",
        kind="stills by centre",
        frames=1537,
        licence="CC BY 4.0",
        citation="Ali et al., A multi-centre polyp detection and segmentation dataset for generalisability assessment, "
        "Scientific Data 2023",
        obtain="https://www.synapse.org/#!Synapse:syn26376615",
        layout="ROOT/C1/{images,masks}/NAME.jpg … C6; or ROOT/data_C1/{images_C1,masks_C1}/NAME[_mask].jpg …",
        shipped_weights=True,
        remarks="Some masks are empty: frames without polyp. Split by centre.",
    )

    def files(self, root: Path) -> list[ClipFiles]:
        clips = []
        for centre in CENTRES:
            for folder, suffix in ((root / centre, ""), (root / f"data_{centre}", f"_{centre}")):
                if (folder / f"images{suffix}").is_dir():
                    frames, orphans = pair_by_stem(
                        folder / f"images{suffix}", folder / f"masks{suffix}", mask_stem=strip_mask_affix
                    )
                    clips.append(ClipFiles(centre, centre, frames, is_video=False, orphans=orphans))
                    break
        if not clips:
            raise MissingInput(
                f"{root}: expected folders C1 … C6 (or data_C1 … data_C6) of PolypGen, found none; "
                "see `polypscope datasets info polypgen`."
            )
        return clips


DATASET = PolypGen()
