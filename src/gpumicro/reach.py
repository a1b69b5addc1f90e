"""Works by name, so that another process can find them: "package.module:function" or "file.py:function"."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import traceback
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import GpumicroError, UsageError, nearest

FORMS = '"package.module:function", "file.py:function" or a function at the top level of a module'


class OwnCodeError(GpumicroError):
    """The user's own code raised; the message holds its traceback, from its file on."""

    def __init__(self, what: str, error: BaseException, path: Path) -> None:
        super().__init__(f"{what} raised {type(error).__name__}\n{_traceback(error, path)}".rstrip())


def name_of(work: Any) -> str:
    """The name by which another process reaches it; a text is taken as one. Raises UsageError with the cure."""
    if isinstance(work, str):
        _split(work)
        return work
    module, name = getattr(work, "__module__", None), getattr(work, "__qualname__", None)
    if not callable(work) or not module or not name:
        raise UsageError(f"a fresh process cannot reach {type(work).__name__} {work!r}; give {FORMS}")
    if "<" in name:
        raise UsageError(f"a fresh process cannot reach {name}: it has no name in a module; give {FORMS}")
    home = sys.modules.get(module)
    if home is None or attribute_of(home, name) is not work:
        raise UsageError(f"a fresh process would find something else under {module}:{name}; give {FORMS}")
    if module != "__main__":
        return f"{module}:{name}"
    file = getattr(home, "__file__", None)
    if file is None or not Path(file).is_file():  # "<stdin>" is one too
        raise UsageError(f"{name} was defined in a session, which no other process sees; put it into a file")
    return f"{Path(file).resolve()}:{name}"


def load(name: str) -> Any:
    """What has that name: a function or another work. Runs its module or file. Raises UsageError, and OwnCodeError
    where the file does."""
    place, attribute = _split(name)
    module = load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    found = attribute_of(module, attribute)
    if found is None:
        raise UsageError(f"{place} has no {attribute!r}{nearest(attribute, _public(module))}")
    return found


def _split(name: str) -> tuple[str, str]:
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute.replace(".", "_").isidentifier():
        raise UsageError(f"{name!r} names no function; give {FORMS}")
    return place, attribute


def attribute_of(module: ModuleType, name: str) -> Any:
    """What stands under a name, also "Class.method"; None where nothing does."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _public(module: ModuleType) -> list[str]:
    names = [
        key for key, value in vars(module).items() if not key.startswith("_") and not isinstance(value, ModuleType)
    ]
    return [name for name in names if name != "annotations"] or ["nothing"]


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(f"there is no module {name!r} here; give {FORMS}") from None
        raise UsageError(f"{name} cannot be imported: {error}") from error
    except Exception as error:
        raise UsageError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def load_file(path: Path) -> ModuleType:
    """The file as a module that is not __main__, its folder first on the path as Python has it for a script.

    What it prints goes to standard error: standard output is for results. UsageError: no such file, a syntax error, a
    file that ends the process. OwnCodeError: it raised.
    """
    if not path.is_file():
        raise UsageError(f"{path} is a directory, not a file" if path.is_dir() else f"no such file: {path}")
    try:
        before, null, _ = path.read_bytes().partition(b"\0")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    if null:  # a ValueError without a place before Python 3.11.4
        line = before.count(b"\n") + 1
        raise UsageError(f"{path}:{line}: SyntaxError: source code cannot contain null bytes")
    name = f"_gpumicro_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    loader = SourceFileLoader(name, str(path))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # as an import does: dataclasses and pickle look there
    folder = str(path.resolve().parent)
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _said(error, path) from error
    return module


def _said(error: Exception | SystemExit, path: Path) -> GpumicroError:
    """What a file raised while it was run, in words."""
    if isinstance(error, SyntaxError):
        return UsageError(f"{error.filename or path}:{error.lineno or 0}: {type(error).__name__}: {error.msg}")
    if isinstance(error, SystemExit):
        return UsageError(
            f"{path.name} ends the process while it is imported (exit {error.code}); put what does so under "
            'if __name__ == "__main__":'
        )
    return OwnCodeError(f"{path.name}, while it was imported,", error, path)


def _traceback(error: BaseException, path: Path) -> str:
    """The traceback from the user's file on: how we came to call it is of no interest."""
    told = traceback.TracebackException.from_exception(error)
    first = next((i for i, frame in enumerate(told.stack) if Path(frame.filename) == path), 0)
    told.stack = traceback.StackSummary.from_list(told.stack[first:])
    told.__cause__ = told.__context__ = None
    return "".join(told.format())
