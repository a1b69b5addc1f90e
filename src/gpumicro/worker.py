"""`python -m gpumicro.worker REQUEST ANSWER`: one process of `compare(processes=...)`. Not for users."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .comparison import compare
from .errors import GpumicroError, UsageError
from .reach import load


def work(request: str, answer: str) -> None:
    """Compare what the request names and write the comparison, or the error in words."""
    asked = json.loads(Path(request).read_text())
    try:
        found = compare(load(asked["a"]), load(asked["b"]), **asked["options"]).to_json()
    except Exception as error:
        words = str(error) if isinstance(error, GpumicroError) else f"{type(error).__name__}: {error}"
        found = {"error": words, "usage": isinstance(error, UsageError)}
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2])
