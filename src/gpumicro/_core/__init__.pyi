from __future__ import annotations

from . import cpu as cpu
from . import timing as timing

__version__: str
cuda_why: str  # why there is no _cuda beside this module; "" where there is
