"""Tasks for developers: `nox -s lint tests native`."""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "tests", "native"]


@nox.session
def lint(session: nox.Session) -> None:
    """Run the linters and the type checker."""
    session.install(".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run the tests on one Python."""
    session.install(".[test]")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def native(session: nox.Session) -> None:
    """Run the native tests under ASan and UBSan."""
    session.install("pybind11", "cmake")
    session.run(".ci/sanitize", f"{session.create_tmp()}/build", external=True)
