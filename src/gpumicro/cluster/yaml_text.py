"""Plain data as YAML, in the part of it that cannot be misread: block style, every text in double quotes.

No library is needed for what is written here and nothing is ever read. A text cannot end its quotes: whatever is not
a plain ASCII character is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_LONGEST_KEY = 1024  # YAML 1.2, 7.4.2: of a key on one line
_NOT_PLAIN = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def yaml_text(*documents: Mapping[str, Any]) -> str:
    """The documents one after the other: mappings, sequences, texts, whole numbers, booleans. TypeError for others."""
    return "---\n".join("\n".join(_mapping(document, "")) + "\n" for document in documents)


def _mapping(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, item in value.items():
        yield from _entry(f"{indent}{_key(key)}:", item, indent)


def _entry(head: str, item: Any, indent: str) -> Iterator[str]:
    """`head` is `key:` with its indentation."""
    if isinstance(item, Mapping) and item:
        yield head
        yield from _mapping(item, f"{indent}  ")
    elif isinstance(item, Sequence) and not isinstance(item, str) and item:
        yield head
        for part in item:
            yield from _part(part, indent)
    else:
        yield f"{head} {_scalar(item)}"


def _part(item: Any, indent: str) -> Iterator[str]:
    if isinstance(item, Mapping) and item:
        first, *rest = _mapping(item, f"{indent}  ")
        yield f"{indent}- {first.removeprefix(f'{indent}  ')}"
        yield from rest
    else:
        yield f"{indent}- {_scalar(item)}"


def _key(key: str) -> str:
    if _PLAIN_KEY.fullmatch(key) and key.lower() not in _NOT_PLAIN:
        return key
    if len(quoted := _quoted(key)) > _LONGEST_KEY:
        raise ValueError(f"a key of {len(quoted)} characters: YAML takes {_LONGEST_KEY}")
    return quoted


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping) and not value:
        return "{}"
    if isinstance(value, Sequence) and not value:
        return "[]"
    raise TypeError(f"cannot be written here: {value!r}")


def _quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if " " <= char <= "~":
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
