"""A small table for a notebook, from plain texts: everything is escaped, nothing is styled from outside."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def html_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A caption and rows of a name and a value; rows without a value are left out."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
        if value
    )
    return f'<table><caption style="text-align:left">{escape(title)}</caption>{cells}</table>'
