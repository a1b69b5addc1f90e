"""Reads TOML, and values out of its tables with the place in every error."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SchemaError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Table = Mapping[str, Any]


def read_toml(path: Path, name: str) -> Table:
    """The file's top table. Raises SchemaError with file, line and column."""
    try:
        table: Table = tomllib.loads(path.read_text("utf-8"))
        return table
    except FileNotFoundError:
        raise SchemaError(f"{name}: no such file") from None
    except OSError as error:
        raise SchemaError(f"{name}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"{name}: not UTF-8 (byte {error.start})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SchemaError(f"{name}: not TOML: {error}") from None


@dataclass(frozen=True, slots=True)
class Reader:
    """A table that knows where it stands: `specs.toml: cpu[0]`."""

    table: Table
    place: str

    def only(self, *keys: str) -> None:
        """Refuse a key that is not in the list: most likely a slip of the pen."""
        for key in self.table:
            if key not in keys:
                raise SchemaError(f"{self.place}.{key}: unknown key (known: {', '.join(keys)})")

    def text(self, key: str) -> str | None:
        """A non-empty string, None where the key is absent."""
        value = self.table.get(key)
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise self._wrong(key, "a non-empty string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; one string counts as a list of one."""
        value = self.table.get(key, [])
        value = [value] if isinstance(value, str) else value
        if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise self._wrong(key, "a string or a list of strings")
        return tuple(value)

    def number(self, key: str) -> float | None:
        """A positive finite number, None where the key is absent."""
        value = self.table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
            raise self._wrong(key, "a positive number")
        return float(value)

    def whole(self, key: str) -> int | None:
        """A positive whole number, None where the key is absent."""
        value = self.number(key)
        if value is not None and value != int(value):
            raise self._wrong(key, "a whole number")
        return None if value is None else int(value)

    def inner(self, key: str) -> Reader:
        """The table under that key, an empty one where it is absent."""
        value = self.table.get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "a table")
        return Reader(value, f"{self.place}.{key}")

    def tables(self, key: str) -> tuple[Reader, ...]:
        """Each table of an array of tables."""
        value = self.table.get(key, [])
        if not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
            raise self._wrong(key, f"an array of tables: [[{key}]]")
        return tuple(Reader(item, f"{self.place}: {key}[{index}]") for index, item in enumerate(value))

    def _wrong(self, key: str, expected: str) -> SchemaError:
        dot = "." if "[" in self.place.rpartition(": ")[2] else ": "
        return SchemaError(f"{self.place}{dot}{key} must be {expected}, not {self.table[key]!r}")
