"""The nearest names: one helper for kernels, backends, dtypes, specs and formats."""

from __future__ import annotations

import pytest

from gpumicro.errors import nearest, unknown
from gpumicro.peaks import gpu_specs


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("tria", ["read", "triad", "dot"], "; did you mean triad?"),
        ("H100", [spec.id for spec in gpu_specs()], "; did you mean h100-sxm5-80, h100-pcie-80, h100-nvl-94?"),
        ("flot64", ["float64", "float32", "int8"], "; did you mean float64, float32?"),
        ("zzz", ["cpu", "cuda"], "; there are cpu, cuda"),
        ("", ["cpu", "cuda"], "; there are cpu, cuda"),
    ],
)
def test_what_holds_the_word_comes_before_what_looks_like_it(word: str, known: list[str], hint: str) -> None:
    assert nearest(word, known) == hint
    assert unknown("thing", word, known) == f"unknown thing {word!r}{hint}"
