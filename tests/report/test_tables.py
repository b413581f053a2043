"""The three forms of a table agree and escape what each form would misread."""

import numpy as np

from polypscope.report.tables import Column, Table, written

TABLE = Table(
    columns=[
        Column("method", "Method"),
        Column("dice", "Dice", best="high", group="Easy", latex=r"$\mathrm{Dice}$"),
        Column("mae", "MAE", best="low", group="Easy"),
        Column("n", "Frames"),
    ],
    rows=[
        {"method": "A_1 <b>", "dice": (0.9004, 0.85, 0.95), "mae": 0.02, "n": 3, "_class": "ours"},
        {"method": "B|x", "dice": 0.9001, "mae": np.float64(0.031), "n": 4, "_class": "published"},
        {"method": "C", "dice": None, "mae": float("nan"), "n": 5},
    ],
    caption="50 % of all",
    label="x",
)


def test_best_is_decided_on_the_written_digits_and_by_direction() -> None:
    best = [[TABLE.is_best(row, c) for c in TABLE.columns] for row in TABLE.rows]
    assert best == [[False, True, True, False], [False, True, False, False], [False] * 4]


def test_markdown() -> None:
    assert TABLE.markdown().splitlines() == [
        "| Method | Easy Dice | Easy MAE | Frames |",
        "| :-- | --: | --: | --: |",
        "| A_1 <b> | **0.900 [0.850, 0.950]** | **0.020** | 3 |",
        r"| B\|x | **0.900** | 0.031 | 4 |",
        "| C | – | – | 5 |",
    ]


def test_latex_escapes_and_groups() -> None:
    text = TABLE.latex()
    assert r"\caption{50 \% of all}" in text
    assert r" & \multicolumn{2}{c}{Easy} &  \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"Method & $\mathrm{Dice}$ & MAE & Frames \\" in text
    assert r"A\_1 <b> & \textbf{0.900 [0.850, 0.950]} & \textbf{0.020} & 3 \\" in text
    columns = len(TABLE.columns)
    assert all(
        line.count("&") == columns - 1 for line in text.splitlines() if line.endswith(r"\\") and "multi" not in line
    )


def test_html_escapes_marks_and_carries_the_copies() -> None:
    text = TABLE.html()
    assert "A_1 &lt;b&gt;" in text
    assert "<b>" not in text
    assert '<tr class="published">' in text
    assert 'data-sort="0.9004"' in text
    assert "\\begin{tabular}" in text


def test_numbers_are_written_once_and_alike() -> None:
    assert [written(v, 2) for v in (1, 1.005, np.float32(0.5), None, "x", (0.1, float("nan"), 1.0))] == [
        "1", "1.00", "0.50", "–", "x", "0.10",
    ]  # fmt: skip
