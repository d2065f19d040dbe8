"""plog for people who import it: notebooks, Spark jobs, tests.

`core` and `cli` are top-level packages with common names. If the `core` that Python finds is somebody else's, in the
working directory say, importing plog says so at once instead of failing oddly later.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path


def _ensure_our_own(package: str) -> None:
    ours = Path(__file__).parent.parent / package / "__init__.py"
    spec = importlib.util.find_spec(package)
    found = spec.origin if spec is not None else None
    if found is None or Path(found) != ours:
        raise ImportError(
            f"plog needs its own package {package!r} ({ours}), but Python finds {found or 'none'} first; "
            f"rename yours, or start Python elsewhere or with -P, which leaves the working directory out of sys.path"
        )


for _package in ("core", "cli"):
    _ensure_our_own(_package)

from core import VERSION as __version__  # noqa: E402, N811 - after the check

__all__ = ["__version__"]
