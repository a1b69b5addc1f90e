"""From a mangled symbol to the name a kernel has in its table: "gm::mma_peak<gm::half, float>"."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def _library() -> Any:
    """The C++ runtime, None where there is none to be found."""
    for name in ("libstdc++.so.6", ctypes.util.find_library("stdc++"), ctypes.util.find_library("c++abi")):
        try:
            library = ctypes.CDLL(name) if name else None
        except OSError:
            continue
        if library is not None and hasattr(library, "__cxa_demangle"):
            library.__cxa_demangle.restype = ctypes.c_void_p
            library.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
            return library
    return None


def demangle(symbol: str) -> str:
    """The declaration behind an Itanium ABI name, by the C++ runtime; the symbol itself where that cannot be had."""
    library = _library()
    if library is None or not symbol.startswith("_Z"):
        return symbol
    status = ctypes.c_int()
    text = getattr(library, "__cxa_demangle")(symbol.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not text:
        return symbol
    try:
        return (ctypes.string_at(text) or b"").decode()
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))


def kernel_name(symbol: str) -> str:
    """The kernel's name as its table writes it: no return type, no parameters, ">>" closed up."""
    text = demangle(symbol)
    depth, start, end = 0, 0, len(text)
    for i, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter == " ":
            start = i + 1
        if depth == 0 and letter == "(":
            end = i
            break
    name = text[start:end]
    while "> >" in name:
        name = name.replace("> >", ">>")
    return re.sub(r"\b(\d+)[ul]+\b", r"\1", name)
