"""The command line: parses, calls, prints, and turns errors into exit codes. It computes nothing.

Each command is one file here with a `command`; its heavy imports stand inside its function, so that --help is quick.
"""

from __future__ import annotations

from importlib import import_module
from keyword import iskeyword

import click

from .. import __version__

COMMANDS = (
    "roofline",
    "run",
    "report",
    "compare",
    "ab",
    "import",
    "collectives",
    "allreduce",
    "precision",
    "memory",
    "io",
    "monitor",
    "scale",
    "cost",
    "fleet",
    "cluster",
    "launch",
    "info",
    "list",
    "specs",
)


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name  # no module may be called `import`
        command: click.Command = import_module(f".{module}", __name__).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from ..errors import unknown

            raise click.UsageError(unknown("command", args[0], COMMANDS), ctx)
        return super().resolve_command(ctx, args)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gpumicro")
def cli() -> None:
    """What does this GPU, this node, this cluster really deliver, and where does my kernel stand?

    Start with `gpumicro roofline`: it measures this machine's ceilings and shows what holds a kernel back.

    \b
    Exit codes: 0 good, 1 a check failed or a kernel was wrong, 2 wrong use,
    3 a backend or device that cannot run here, 130 interrupted.
    """
