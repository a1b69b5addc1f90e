"""Every rank with every other, disjoint pairs at once, then the suspects with healthy partners: who is slow?

The whole runs inside `job.run`, on all ranks alike: each knows all times after each round, so each knows the next one.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ..errors import BackendUnavailable, GpumicroError, UsageError
from ..result import document, write
from ..units import format_fraction, format_quantity, format_size
from . import settings as wishes
from .crew import HostCrew
from .job import Agreed, Output
from .operations import collective
from .pairs import LEAST_NODES, Pair, PairTime, Search, confirm, find_stragglers, pair_times, retest, tournament
from .ranks import Case, Ranks
from .records import host_medium, record
from .run import Row, lead
from .session import Session
from .settings import Peer, Settings
from .watchdog import Watchdog

Record = dict[str, Any]
MOST_TO_MEET_ALL = 32  # ranks; with more, a few rounds find the suspects, and retests tell node from link
FEW_ROUNDS = 3
CONFIRMATIONS = 2  # of what was slow: with the first time a median of three


class Splitting(Ranks, Protocol):
    """Ranks that can be divided into groups."""

    def split(self, group: int) -> Splitting:
        """Those of all ranks that name the same group, in their order. Called by all."""
        ...

    def free(self) -> None:
        """Let go of what `split` made."""
        ...


class Two:
    """A pair, as far as its row depends on it."""

    size = 2

    def __init__(self, ranks: Ranks) -> None:
        self.form = ranks.form


def pair_settings(settings: Settings) -> Settings:
    """As wished, out of place where that can be had. UsageError for more than one collective or size, or for one
    without data."""
    if len(settings.collectives) != 1 or len(settings.sweep.sizes()) != 1:
        raise UsageError("--pairs times one collective at one size: name one, and give -b and -e alike or neither")
    kind = collective(settings.collectives[0])
    return replace(settings, places=kind.places[:1], root=0)


def together(
    ranks: Ranks, settings: Settings, output: Output, expect: int | None, dog: Watchdog, *, rounds: int | None = None
) -> int:
    """This rank's part. The exit code: 0, or 1 where an element was wrong or something is slow.

    `rounds`: so many of the n - 1 in which everyone meets everyone; None: all of up to 32 ranks, else 3.
    """
    try:
        if not hasattr(ranks, "split"):
            raise BackendUnavailable(f"--pairs divides the ranks, which {ranks.library} cannot", "Start it with mpirun")
        peers = wishes.meet(ranks, settings, expect)
        if ranks.size < LEAST_NODES:
            raise UsageError(f"{ranks.size} ranks: a straggler shows against {LEAST_NODES} or more")
        case = wishes.cases(settings, Two(ranks), wishes.most_bytes(peers))[0][0]
    except GpumicroError as error:
        raise Agreed(error) from error
    limit = rounds or (None if ranks.size <= MOST_TO_MEET_ALL else FEW_ROUNDS)
    return _Hunt(ranks, case, peers, settings, output, dog.beat).run(limit)  # type: ignore[arg-type]  # has split


def node_names(peers: Sequence[Peer]) -> list[str]:
    """The host of each rank; "host/3", with the rank's number, where a host has several."""
    on_host = Counter(peer.host for peer in peers)
    return [peer.host if on_host[peer.host] == 1 else f"{peer.host}/{rank}" for rank, peer in enumerate(peers)]


class _Hunt:
    """One rank's part of it; rank 0 alone writes."""

    def __init__(
        self, ranks: Splitting, case: Case, peers: Sequence[Peer], settings: Settings, output: Output,
        beat: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._ranks, self._case, self._peers, self._settings, self._output = ranks, case, peers, settings, output
        self._beat, self._names = beat, node_names(peers)
        self._places = {name: rank for rank, name in enumerate(self._names)}
        self._found: list[Record] = []
        self._environment: Record | None = None

    def run(self, rounds: int | None) -> int:
        self._say(f"{self._where}, pairs: {self._case.kind.name} of {format_size(self._case.size_bytes)}, "
                  f"{self._settings.dtype}, {self._case.place}")  # fmt: skip
        self._say(f"{'pair':<40} {'time':>9} {'+-':>6} {'bandwidth':>11} {'#wrong':>6}")
        for number, pairs in enumerate(tournament(self._names)[:rounds], 1):
            self._round(f"round {number}", pairs)
        search = self._search()
        for number, pairs in enumerate(retest(search) if search.healthy else (), 1):
            self._round(f"retest {number}", pairs)
            search = self._search()
        for number, pairs in enumerate(CONFIRMATIONS * confirm(search, self._times()), 1):
            self._round(f"confirmation {number}", pairs)
            search = self._search()
        for line in ("", *search_lines(search)):
            self._say(line)
        self._keep(interrupted=False)
        failed = any(item["status"] != "ok" for item in self._found)
        return 1 if failed or search.slow_nodes or search.slow_links else 0

    @property
    def _where(self) -> str:
        hosts = len({peer.host for peer in self._peers})
        return f"{len(self._names)} ranks on {hosts} host{'s' * (hosts > 1)}, {self._ranks.library}"

    def _round(self, title: str, pairs: Sequence[Pair]) -> None:
        """All pairs at once; those that rest wait at the exchange."""
        mine = next((index for index, pair in enumerate(pairs) if self._names[self._ranks.rank] in pair), None)
        part = self._ranks.split(len(pairs) + self._ranks.rank if mine is None else mine)
        row: Record | None = None
        if mine is not None:
            session = Session(
                part, [self._case], HostCrew(part, [self._case]), lambda place: self._beat(f"{title}: {place}")
            )
            rows: list[Row] = []
            if part.rank == 0:
                lead(session, self._settings, rows.append)
                row = self._record(rows[0], pairs[mine])
            else:
                session.follow()
        part.free()
        found = [one for one in exchange_json(self._ranks, row) if one is not None]
        self._beat(title)
        self._found += found
        for one in found:
            self._say(_line(one))
        self._keep(interrupted=True)

    def _record(self, row: Row, pair: Pair) -> Record:
        a, b = (self._peers[self._places[name]].host for name in pair)
        made = record(row, 2, 1 if a == b else 2, host_medium(self._ranks))
        return made | {"id": f"{made['id']}/pair={pair[0]}--{pair[1]}", "pair": list(pair)}

    def _search(self) -> Search:
        return find_stragglers(self._times())

    def _times(self) -> list[PairTime]:
        return pair_times([{"measurements": self._found}])

    def _say(self, line: str) -> None:
        if self._ranks.rank == 0:
            self._output.line(line)

    def _keep(self, *, interrupted: bool) -> None:
        file = self._output.file
        if self._ranks.rank != 0 or file is None or (interrupted and file == "-"):
            return
        from ..environment import collect

        self._environment = self._environment or collect()
        found = numbered(self._found)
        write(file, document(
            argv=sys.argv[1:], devices=[{"id": "ranks:2", "kind": "group", "name": f"pairs of {self._where}"}],
            measurements=found, notes=[], settings={"pairs": True, "dtype": self._settings.dtype},
            environment=self._environment, interrupted=interrupted, emulated=False,
        ))  # fmt: skip


def numbered(items: Sequence[Record]) -> list[Record]:
    """With ids of their own: a pair that is timed again gets `#2`."""
    seen: Counter[str] = Counter()
    found = []
    for item in items:
        seen[item["id"]] += 1
        again = seen[item["id"]]
        found.append(item if again == 1 else item | {"id": f"{item['id']}#{again}"})
    return found


def exchange_json(ranks: Ranks, value: Any) -> list[Any]:
    """Every rank's value, which JSON can hold; lengths go first, as an exchange takes records of one length."""
    mine = json.dumps(value).encode()
    longest = max(int(one) for one in ranks.exchange(b"%20d" % len(mine)))
    return [json.loads(one) for one in ranks.exchange(mine.ljust(longest))]


def _line(item: Record) -> str:
    time, name = item["time_s"], "--".join(item["pair"])
    half = (time["ci95"][1] - time["ci95"][0]) / 2 / time["estimate"] if time["ci95"] and time["estimate"] else None
    rate = (item.get("algbw_bytes_per_s") or {}).get("estimate")
    return (
        f"{name:<40} {format_quantity(time['estimate'], 's', time['ci95'], 3):>9}"
        f" {'-' if half is None else format_fraction(half, 2):>6}"
        f" {'-' if rate is None else format_quantity(rate, 'B/s'):>11} {item.get('wrong') or 0:>6}"
    )


def search_lines(search: Search) -> list[str]:
    """The verdict in words, a line each."""
    lines = [
        f"SLOW {what}: {'--'.join(slow.names)}, {format_fraction(slow.excess)} longer than the typical pair "
        f"(robust z {slow.z:.1f}, {slow.pairs} pair{'s' * (slow.pairs > 1)})"
        for what, found in (("node", search.slow_nodes), ("link", search.slow_links))
        for slow in found
    ]
    if search.suspects:
        lines.append(f"suspects, node or link not told apart: {', '.join(search.suspects)}")
    typical = f"typical pair {format_quantity(search.typical_s, 's')}, spread {format_fraction(search.spread)}"
    return [*lines, typical if lines else f"no straggler: {typical}"]
