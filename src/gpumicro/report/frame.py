"""The result as a pandas frame."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import BackendUnavailable
from .csv import COLUMNS, rows
from .tables import Doc


def to_dataframe(doc: Doc) -> Any:
    """A pandas.DataFrame: one row a ceiling, ridge point, point and measurement, columns as in the CSV; SI base units.

    What is missing is NaN in columns of numbers and None in columns of texts. Raises BackendUnavailable without pandas.
    """
    try:
        pandas = import_module("pandas")  # it brings no types
    except ImportError as error:
        raise BackendUnavailable(f"pandas cannot be imported: {error}", "pip install pandas") from None
    return pandas.DataFrame([{key: row.get(key) for key in COLUMNS} for row in rows(doc)], columns=list(COLUMNS))
