"""A report as one HTML file: no network, no other file, readable on a phone, in print, in light and in dark.

A page is a title and sections; a section is a heading and parts; a part is anything with an `html()` method: the ones
below, or `report.tables.Table`.

>>> text = page("Scores", [Section("Result", [Paragraph("All <well>.")])])
>>> "All &lt;well&gt;." in text and DISCLAIMER in text
True
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Literal, Protocol

from polypscope import DISCLAIMER


class Part(Protocol):
    """Anything that can stand in a section."""

    def html(self) -> str: ...


@dataclass(frozen=True)
class Paragraph:
    """Plain text; a blank line starts a new paragraph."""

    text: str

    def html(self) -> str:
        return "".join(f"<p>{escape(block.strip())}</p>" for block in self.text.split("\n\n") if block.strip())


@dataclass(frozen=True)
class Note:
    """A remark that must not be overlooked, with a list of particulars if there are any."""

    text: str
    items: Sequence[str] = ()
    kind: Literal["info", "warning"] = "info"

    def html(self) -> str:
        items = "".join(f"<li>{escape(item)}</li>" for item in self.items)
        return f'<div class="note {self.kind}"><p>{escape(self.text)}</p>{f"<ul>{items}</ul>" if items else ""}</div>'


@dataclass(frozen=True)
class Facts:
    """A few headline numbers as tiles: name -> value as text."""

    values: Mapping[str, str]

    def html(self) -> str:
        tiles = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in self.values.items())
        return f'<dl class="facts">{tiles}</dl>'


@dataclass(frozen=True)
class Figure:
    """An image inside the page: SVG is placed as markup (text stays text), PNG and JPEG as data."""

    image: bytes
    caption: str = ""
    alt: str = ""
    form: Literal["svg", "png", "jpeg"] = "svg"

    def html(self) -> str:
        if self.form == "svg":
            picture = _inline_svg(self.image.decode("utf-8"), self.alt or self.caption)
        else:
            data = base64.b64encode(self.image).decode("ascii")
            alt = escape(self.alt or self.caption, quote=True)
            picture = f'<img src="data:image/{self.form};base64,{data}" alt="{alt}" loading="lazy">'
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return f'<figure class="picture"><div class="paper">{picture}</div>{caption}</figure>'


@dataclass(frozen=True)
class Gallery:
    """Several parts side by side where the page is wide enough."""

    parts: Sequence[Part]

    def html(self) -> str:
        return f'<div class="gallery">{"".join(part.html() for part in self.parts)}</div>'


@dataclass(frozen=True)
class Code:
    """Text to copy as it is: a command, a citation."""

    text: str

    def html(self) -> str:
        return f'<div class="copy"><button type="button">Copy</button><pre>{escape(self.text)}</pre></div>'


@dataclass(frozen=True)
class Fold:
    """Parts behind a line that opens them."""

    summary: str
    parts: Sequence[Part]

    def html(self) -> str:
        inner = "".join(part.html() for part in self.parts)
        return f"<details><summary>{escape(self.summary)}</summary>{inner}</details>"


@dataclass(frozen=True)
class Raw:
    """Markup of our own making. Nothing that a user or a file supplied may come here unescaped."""

    markup: str

    def html(self) -> str:
        return self.markup


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    parts: Sequence[Part]


def page(
    title: str, sections: Sequence[Section], *, lead: str = "", disclaimer: str = DISCLAIMER, footer: str = ""
) -> str:
    """The whole page as text. `lead` stands under the title, `footer` beside the disclaimer at the end."""
    template = _environment().get_template("page.html")
    return template.render(
        title=title,
        lead=lead,
        disclaimer=disclaimer,
        footer=footer,
        css=_asset("page.css"),
        script=_asset("page.js"),
        sections=[
            {"id": _anchor(s.title, i), "title": s.title, "body": "".join(p.html() for p in s.parts)}
            for i, s in enumerate(sections)
        ],
    )


def write_page(path: Path, title: str, sections: Sequence[Section], **options: str) -> Path:
    """Write the page to `path` whole or not at all."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(page(title, sections, **options), encoding="utf-8")
    temporary.replace(path)
    return path


def _anchor(title: str, i: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or f"section-{i}"


_svg_count = 0


def _inline_svg(svg: str, alt: str) -> str:
    """Markup of one SVG that can stand beside others in a page: no XML head, ids of its own, scaled to its box."""
    global _svg_count
    _svg_count += 1
    start = svg.find("<svg")
    svg = svg[start:]
    # matplotlib numbers clip paths alike in every file: two plots in one page would clip each other.
    mark = f"s{_svg_count}-"
    svg = re.sub(r'\bid="', f'id="{mark}', svg)
    svg = re.sub(r'(xlink:href|href)="#', rf'\1="#{mark}', svg)
    svg = svg.replace("url(#", f"url(#{mark}")
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    width = re.search(r'viewBox="0 0 ([\d.]+)', head)
    style = f' style="max-width:{float(width.group(1)) * 1.45:.0f}px"' if width else ""
    return f'{head} role="img" aria-label="{escape(alt, quote=True)}"{style}>{rest}'


def _asset(name: str) -> str:
    return resources.files("polypscope.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment():  # type: ignore[no-untyped-def]
    import jinja2

    loader = jinja2.FunctionLoader(_asset)
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
