"""CVC-ColonDB: 380 stills of 15 videos."""

from __future__ import annotations

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.stills import StillPairs

__all__ = ["DATASET"]

DATASET = StillPairs(
    DatasetCard(
        name="cvc-colondb",
        title="CVC-ColonDB",
        kind="stills",
        frames=380,
        licence="academic use",
        citation="Tajbakhsh et al., Automated Polyp Detection in Colonoscopy Videos Using Shape and Context "
        "Information, TMI 2016; Bernal et al., Towards Automatic Polyp Detection with a Polyp Appearance Model, 2012",
        obtain="http://vi.cvc.uab.es/colon-qa/cvccolondb/",
        layout="ROOT/images/1.png, ROOT/masks/1.png (or p1.png)",
        shipped_weights=False,
        remarks="The first release has 300 stills.",
    )
)
