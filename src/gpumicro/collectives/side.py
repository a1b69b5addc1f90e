"""What differs between a job on CPUs and one on GPUs: who takes part, what moves the data, and how it is ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from . import settings as wishes
from .crew import Crew, HostCrew
from .ranks import Case, Control, Ranks
from .records import Medium, host_medium
from .settings import Group, Peer, Settings

Beat = Callable[[str], None]  # gets words of where one stands


class Side(Protocol):
    """One process of a job. The methods are called by all processes, in this order; `abort` at any time."""

    control: Control
    ended: bool  # `abort` was called: what is raised then is only its echo

    def introduce(self, settings: Settings) -> Peer:
        """This process, for the others."""

    def know(self, peers: Sequence[Peer]) -> Group:
        """All processes, by their numbers; their ranks, as far as the rows depend on them."""

    def medium(self) -> Medium:
        """What moves the data, in words."""

    def crew(self, cases: Sequence[Case], beat: Beat) -> Crew:
        """The ranks of this process, ready to work."""

    def remarks(self) -> list[str]:
        """What the run has shown beside its rows; of use on rank 0, before `close`."""

    def close(self) -> None:
        """The work is done."""

    def abort(self) -> None:
        """End what waits for other ranks, from any thread."""


class HostSide:
    """Ranks on CPUs: what moves the data is what they talk through."""

    ended = False

    def __init__(self, ranks: Ranks) -> None:
        self.control: Control = ranks
        self._ranks = ranks

    def introduce(self, settings: Settings) -> Peer:
        return wishes.describe(settings)

    def know(self, peers: Sequence[Peer]) -> Group:  # noqa: ARG002  (a rank a process)
        return self._ranks

    def medium(self) -> Medium:
        return host_medium(self._ranks)

    def crew(self, cases: Sequence[Case], beat: Beat) -> Crew:  # noqa: ARG002  (nothing here takes long)
        return HostCrew(self._ranks, cases)

    def remarks(self) -> list[str]:
        return []

    def close(self) -> None:
        """Nothing of its own."""

    def abort(self) -> None:
        """Nothing of its own."""
