"""A page is whole in one file and lets nothing that was given run as markup."""

import re
from pathlib import Path

from polypscope.report.page import (
    DISCLAIMER,
    Code,
    Facts,
    Figure,
    Fold,
    Gallery,
    Note,
    Paragraph,
    Section,
    page,
    write_page,
)
from polypscope.report.plots import new_figure, render


def plot() -> bytes:
    figure, (ax,) = new_figure(3, 2)
    ax.plot([0, 1], [0, 1])
    ax.set_xlabel("threshold")
    return render(figure, "svg")


EVIL = "<script>alert(1)</script>"


def test_everything_given_is_escaped() -> None:
    parts = [Paragraph(EVIL), Note(EVIL, [EVIL]), Facts({EVIL: EVIL}), Code(EVIL), Fold(EVIL, [Paragraph(EVIL)])]
    text = page(EVIL, [Section(EVIL, parts)], lead=EVIL, footer=EVIL)
    assert "alert(1)" in text
    assert EVIL not in text


def test_the_page_needs_no_network_and_disclaims() -> None:
    text = page("T", [Section("S", [Figure(plot(), "curve"), Figure(b"\x89PNG", "p", form="png")])])
    assert text.count(DISCLAIMER) == 2
    addresses = re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', text)
    assert addresses == []
    assert not re.search(r"@import|url\((?!#)", text)


def test_two_plots_in_one_page_keep_their_own_ids() -> None:
    text = page("T", [Section("S", [Gallery([Figure(plot(), "a"), Figure(plot(), "b")])])])
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text):
        assert target in ids


def test_figures_are_reproducible() -> None:
    assert plot() == plot()


def test_write_leaves_no_half_file(tmp_path: Path) -> None:
    write_page(tmp_path / "r.html", "T", [])
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
