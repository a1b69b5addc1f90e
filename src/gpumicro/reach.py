"""Works by name, so that a fresh process can find them: "package.module:function" or "file.py:function"."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import UsageError, nearest

FORMS = '"package.module:function", "file.py:function" or a function at the top level of a module'


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
    if home is None or _attribute(home, name) is not work:
        raise UsageError(f"a fresh process would find something else under {module}:{name}; give {FORMS}")
    if module != "__main__":
        return f"{module}:{name}"
    file = getattr(home, "__file__", None)
    if file is None or not Path(file).is_file():  # "<stdin>" is one too
        raise UsageError(f"{name} was defined in a session, which no other process sees; put it into a file")
    return f"{Path(file).resolve()}:{name}"


def load(name: str) -> Any:
    """What has that name: a function or another work. Runs its module or file. Raises UsageError."""
    place, attribute = _split(name)
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    found = _attribute(module, attribute)
    if found is None:
        raise UsageError(f"{place} has no {attribute!r}{nearest(attribute, _public(module))}")
    return found


def _split(name: str) -> tuple[str, str]:
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute.replace(".", "_").isidentifier():
        raise UsageError(f"{name!r} names no function; give {FORMS}")
    return place, attribute


def _attribute(module: ModuleType, name: str) -> Any:
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


def _load_file(path: Path) -> ModuleType:
    """The file as a module that is not __main__, its folder first on the path as Python has it for a script."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    name = f"_gpumicro_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and the like look their module up
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UsageError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    return module
