"""Published rows are facts: spot values of each table, the authors' correction, and nothing missing."""

import pytest

from polypscope.report.segmentation_leaderboard import published


@pytest.mark.parametrize(
    ("protocol", "subset", "method", "measure", "value"),
    [
        ("sunseg", "TestEasyDataset/Seen", "COSNet", "Smeasure", 0.845),
        ("sunseg", "SUN-SEG-Hard (Seen)", "PNS+", "meanEm", 0.902),
        ("sunseg", "SUN-SEG-Hard (Seen)", "PNS+", "maxDice", 0.855),
        ("sunseg", "TestEasyDataset/Unseen", "UNet", "meanSen", 0.420),
        ("sunseg", "TestHardDataset/Unseen", "2/3D", "wFmeasure", 0.634),
        ("polypsense3d", "Clinical", "Sam2-unet", "mDice", 0.7346),
        ("polypsense3d", "unity", "MSNet", "F1", 0.9412),
    ],
)
def test_spot_values(protocol: str, subset: str, method: str, measure: str, value: float) -> None:
    facts = published(protocol)
    assert facts is not None
    assert {score.method: score for score in facts.on(subset)}[method].values[measure] == value


def test_every_row_is_there() -> None:
    facts = published("sunseg")
    assert facts is not None
    assert [len(facts.on(f"{level}/{scene}")) for level in ("easy", "hard") for scene in ("seen", "unseen")] == [
        9,
        14,
    ] * 2
    assert {(len(facts.attributes_on(f"{level}/Unseen"))) for level in ("Easy", "Hard")} == {14}
    assert all(len(score.values) == 10 for score in facts.attribute_structure)
    by_method = {s.method: s.values for s in facts.attributes_on("Easy/Unseen")}
    assert by_method["PNS+"]["IB"] == 0.667
    assert "0.929 to 0.902" in facts.note
    assert published("stills") is None


def test_ranks_on_another_number_of_clips_are_called_so() -> None:
    facts = published("sunseg")
    assert facts is not None
    assert facts.incomparable("TestEasyDataset/Seen", 33) == ""
    assert "5 clips were scored here, 33 in the paper" in facts.incomparable("TestEasyDataset/Seen", 5)
