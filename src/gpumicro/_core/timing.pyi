from __future__ import annotations

class Work:
    """Native work: what a timer runs n times in a row. Keeps its owner alive."""

    @property
    def owner(self) -> object: ...
