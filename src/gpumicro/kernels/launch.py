"""What it costs the host to start and to wait: a kernel on a stream, a graph's replay, an event, an idle wait.

All are timed by the host's clock. "queued": n starts, then one wait, so that the cost of a start is seen; "synced": a
wait after each, the way there and back.
"""

from __future__ import annotations

from .host_action import host_action

VARIANTS = ("queued", "synced")

SPECS = (
    host_action("launch.stream", "an empty kernel is launched", variants=VARIANTS),
    host_action("launch.graph", "a graph of empty kernels is replayed", sizes=("nodes",), variants=VARIANTS),
    host_action("launch.sync", "the host waits for an idle stream"),
    host_action("launch.event", "an event is recorded and the host waits for it"),
)
