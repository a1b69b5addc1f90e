"""What a result file must be: schema (result-1.json), version, finite numbers, and reasons for what is missing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from .. import __version__
from ..errors import SchemaError

# 1: the first. A change of meaning makes 2; additions do not.
SCHEMA = "gpumicro/1"
_MAJOR = 1

Document = dict[str, Any]


def parse(content: bytes, name: str) -> Document:
    """The document in those bytes; `name` is what errors call it."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SchemaError(f"{name}: not UTF-8 (byte {error.start})") from None
    if not text.strip():
        raise SchemaError(f"{name}: the file is empty")
    try:
        doc = json.loads(text)
    except json.JSONDecodeError as error:
        ended = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        what = "truncated: the text ends too early" if ended else f"not JSON: {error.msg}"
        raise SchemaError(f"{name}: {what} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise SchemaError(f"{name}: nested too deeply to be a result file") from None
    except ValueError as error:  # an integer of more digits than Python takes
        raise SchemaError(f"{name}: not a result file: {error}") from None
    validate(doc, name)
    assert isinstance(doc, dict)
    return doc


def validate(doc: Any, name: str = "result") -> None:
    """Raise SchemaError unless `doc` is a `gpumicro/1` result with finite numbers only."""
    _check_version(doc, name)
    for place, value in leaves(doc, ""):
        if isinstance(value, float) and not math.isfinite(value):
            raise SchemaError(f"{name}: {place} is {value}, which no result file may hold")
    _check_rules(doc, name, ())


def validate_parts(doc: Any, name: str, parts: tuple[str, ...]) -> None:
    """`validate` for a reader in haste: the version and what stands under these top-level keys, which must be there.

    Whether the numbers are finite is left to the reader, which sees each that it uses.
    """
    _check_version(doc, name)
    _check_rules(doc, name, parts)


def _check_rules(doc: Any, name: str, parts: tuple[str, ...]) -> None:
    import fastjsonschema

    try:
        _validator(parts)(doc)
    except fastjsonschema.JsonSchemaValueException as error:
        place = place_of(error.path[1:])
        rule = error.message.removeprefix(".".join(error.path)).removeprefix(error.name or "").strip()
        raise SchemaError(f"{name}: {place or 'the top object'} {rule}") from None


def _check_version(doc: Any, name: str) -> None:
    found = doc.get("schema") if isinstance(doc, dict) else None
    if not isinstance(found, str):
        raise SchemaError(f'{name}: not a gpumicro result: no "schema" at the top')
    match = re.fullmatch(r"gpumicro/(\d{1,6})(?:\.\d+)?", found)
    if match is None:
        raise SchemaError(f"{name}: of another schema: {found[:80]!r}, where {SCHEMA!r} was expected")
    if int(match[1]) > _MAJOR:
        raise SchemaError(
            f"{name}: schema {found!r} is newer than this gpumicro {__version__} reads ({SCHEMA!r}); update gpumicro"
        )
    if int(match[1]) < _MAJOR:
        raise SchemaError(f"{name}: schema {found!r} has never existed")


# where null is itself the answer: a memory roof has no dtype, an arithmetic one no level
_NULL_IS_AN_ANSWER = frozenset({"dtype", "level", "measurement", "fraction"})


def missing_reasons(doc: Any) -> list[str]:
    """Places where a value is null and no `<key>_why` explains it, beside it or in an object around it.

    An interval needs no reason of its own where the value it belongs to has one. A test holds our own files to none.
    """
    found: list[str] = []

    def walk(value: Any, place: str, reasons: frozenset[str]) -> None:
        if isinstance(value, dict):
            here = {key for key, item in value.items() if key.endswith("_why") and item}
            known = reasons | here
            for key, item in value.items():
                explained = f"{key}_why" in known or key in _NULL_IS_AN_ANSWER or (key == "ci95" and here)
                if item is None and not explained:
                    found.append(f"{place}.{key}".lstrip("."))
                walk(item, f"{place}.{key}", known)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{place}[{index}]", reasons)

    walk(doc, "", frozenset())
    return found


def leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, f"{place}[{index}]")
    else:
        yield place, value


def place_of(path: Sequence[str]) -> str:
    """`a.b[2]` of the parts of a path."""
    return "".join(f"[{part}]" if str(part).isdigit() else f".{part}" for part in path).lstrip(".")


@lru_cache(maxsize=8)
def _validator(parts: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """Of the whole schema, or of some top-level keys alone."""
    import fastjsonschema

    schema = json.loads((files("gpumicro") / "schema" / "result-1.json").read_text("utf-8"))
    if parts:
        schema["properties"] = {key: schema["properties"][key] for key in parts}
        schema["required"] = [key for key in schema["required"] if key in parts]
    compiled: Callable[[Any], Any] = fastjsonschema.compile(schema, use_default=False)
    return compiled
