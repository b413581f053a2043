"""One table, three forms: HTML for the report, Markdown for an issue or a README, LaTeX for a paper.

A `Table` is columns and rows of plain values; how a number is written, and which end of a column is best, is a
property of its `Column`, so the three forms always agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

Best = Literal["high", "low", ""]


@dataclass(frozen=True)
class Column:
    """A column: the key of its values, its heading, how numbers are written and which end is best.

    `latex` is the heading in LaTeX when it differs (it is not escaped); `group` is a heading above several columns.
    """

    key: str
    heading: str = ""
    digits: int = 3
    best: Best = ""
    latex: str = ""
    group: str = ""
    unit: str = ""

    @property
    def title(self) -> str:
        return (self.heading or self.key) + (f" ({self.unit})" if self.unit else "")


@dataclass(frozen=True)
class Table:
    """Rows of values under columns. A value may be a number, a text, None (written as a dash) or `(value, low, high)`.

    Rows whose key `_class` is set get it as a CSS class in HTML (for example "published").

    >>> t = Table([Column("method"), Column("dice", best="high")], [{"method": "A", "dice": 0.81234}])
    >>> print(t.markdown())
    | method | dice |
    | :-- | --: |
    | A | **0.812** |
    """

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    caption: str = ""
    label: str = ""
    copyable: bool = True
    notes: Sequence[str] = field(default_factory=tuple)

    def cell(self, row: Mapping[str, Any], column: Column) -> str:
        """A value as text, without emphasis."""
        return written(row.get(column.key), column.digits)

    def is_best(self, row: Mapping[str, Any], column: Column) -> bool:
        """Whether the value is the best of its column, as written (ties are all best)."""
        if not column.best:
            return False
        values = [v for v in (_number(r.get(column.key)) for r in self.rows) if v is not None]
        value = _number(row.get(column.key))
        if value is None or not values:
            return False
        top = max(values) if column.best == "high" else min(values)
        return round(value, column.digits) == round(top, column.digits)

    def is_numeric(self, column: Column) -> bool:
        return any(_number(row.get(column.key)) is not None for row in self.rows)

    def markdown(self) -> str:
        """A GitHub-flavoured pipe table; groups of columns are written before the heading."""
        heads = [f"{c.group} {c.title}".strip() for c in self.columns]
        lines = [_pipes(heads), _pipes(["--:" if self.is_numeric(c) else ":--" for c in self.columns])]
        for row in self.rows:
            cells = [self.cell(row, c).replace("|", r"\|") for c in self.columns]
            lines.append(
                _pipes([f"**{t}**" if self.is_best(row, c) else t for t, c in zip(cells, self.columns, strict=True)])
            )
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])

    def latex(self) -> str:
        """A `booktabs` table environment, ready to paste."""
        align = "".join("r" if self.is_numeric(c) else "l" for c in self.columns)
        lines = [r"\begin{table}[t]", r"\centering"]
        if self.caption:
            lines.append(rf"\caption{{{tex(self.caption)}}}")
        if self.label:
            lines.append(rf"\label{{tab:{self.label}}}")
        lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
        spans = self._groups()
        if any(name for name, _, _ in spans):
            cells = [
                rf"\multicolumn{{{n}}}{{c}}{{{tex(name)}}}" if name else " & ".join([""] * n) for name, _, n in spans
            ]
            lines.append(" & ".join(cells) + r" \\")
            lines.append("".join(rf"\cmidrule(lr){{{start + 1}-{start + n}}}" for name, start, n in spans if name))
        lines.append(" & ".join(c.latex or tex(c.title) for c in self.columns) + r" \\")
        lines.append(r"\midrule")
        for row in self.rows:
            cells = []
            for c in self.columns:
                text = tex(self.cell(row, c))
                cells.append(rf"\textbf{{{text}}}" if self.is_best(row, c) else text)
            lines.append(" & ".join(cells) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\footnotesize {tex(note)}" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"])

    def html(self) -> str:
        """A `<figure>` with the table and, if `copyable`, its Markdown and LaTeX forms to copy."""
        parts = ['<figure class="table">']
        if self.caption:
            parts.append(f"<figcaption>{escape(self.caption)}</figcaption>")
        parts.append('<div class="scroll" tabindex="0"><table><thead>')
        spans = self._groups()
        if any(name for name, _, _ in spans):
            cells = "".join(f'<th class="group" colspan="{n}">{escape(name)}</th>' for name, _, n in spans)
            parts.append(f"<tr>{cells}</tr>")
        heads = "".join(
            f'<th scope="col"{_class("num" if self.is_numeric(c) else "")}>{escape(c.title)}{_arrow(c.best)}</th>'
            for c in self.columns
        )
        parts.append(f'<tr class="heads">{heads}</tr></thead><tbody>')
        for row in self.rows:
            parts.append(f"<tr{_class(str(row.get('_class', '')))}>")
            for c in self.columns:
                value = row.get(c.key)
                number = _number(value)
                classes = " ".join(
                    n for n, on in (("num", number is not None or value is None), ("best", self.is_best(row, c))) if on
                )
                sort = f' data-sort="{number!r}"' if number is not None else ""
                parts.append(f"<td{_class(classes)}{sort}>{_html_cell(value, c.digits)}</td>")
            parts.append("</tr>")
        parts.append("</tbody></table></div>")
        parts += [f'<p class="small">{escape(note)}</p>' for note in self.notes]
        if self.copyable:
            for name, text in (("Markdown", self.markdown()), ("LaTeX", self.latex())):
                parts.append(
                    f'<details class="copy"><summary>{name}</summary><button type="button">Copy</button>'
                    f"<pre>{escape(text)}</pre></details>"
                )
        return "".join([*parts, "</figure>"])

    def _groups(self) -> list[tuple[str, int, int]]:
        """Runs of columns under one group heading: (name, first column, number of columns)."""
        runs: list[tuple[str, int, int]] = []
        for i, column in enumerate(self.columns):
            if runs and runs[-1][0] == column.group:
                name, start, n = runs[-1]
                runs[-1] = (name, start, n + 1)
            else:
                runs.append((column.group, i, 1))
        return runs


def written(value: Any, digits: int = 3) -> str:
    """A value as the tables write it.

    >>> written(0.5), written(None), written(float("nan")), written((0.5, 0.4, 0.6), 2), written(12), written(True)
    ('0.500', '–', '–', '0.50 [0.40, 0.60]', '12', 'yes')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        middle, low, high = (written(v, digits) for v in value)
        return middle if low == "–" else f"{middle} [{low}, {high}]"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) or hasattr(value, "dtype"):
        number = float(value)
        return "–" if math.isnan(number) else f"{number:.{digits}f}"
    return str(value)


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "±": r"$\pm$", "≥": r"$\ge$", "≤": r"$\le$",
    "×": r"$\times$", "α": r"$\alpha$", "β": r"$\beta$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
}  # fmt: skip


def tex(text: str) -> str:
    """Escape what LaTeX would read as a command.

    >>> print(tex("case1_1 & 50 %"))
    case1\\_1 \\& 50 \\%
    """
    return "".join(_TEX.get(c, c) for c in text)


def _number(value: Any) -> float | None:
    if isinstance(value, tuple):
        value = value[0]
    if value is None or isinstance(value, str | bool):
        return None
    number = float(value)
    return None if math.isnan(number) else number


def _html_cell(value: Any, digits: int) -> str:
    if isinstance(value, tuple):
        middle, low, high = (written(v, digits) for v in value)
        return middle if low == "–" else f'{middle} <span class="interval">[{low}, {high}]</span>'
    return escape(written(value, digits))


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _class(name: str) -> str:
    return f' class="{escape(name)}"' if name else ""


def _arrow(best: Best) -> str:
    return {"high": ' <span class="arrow" title="higher is better">↑</span>',
            "low": ' <span class="arrow" title="lower is better">↓</span>', "": ""}[best]  # fmt: skip
