from __future__ import annotations

from . import cpu as cpu
from . import timing as timing

__version__: str
