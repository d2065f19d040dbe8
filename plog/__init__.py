"""plog for people who import it: notebooks, Spark jobs, tests."""

from __future__ import annotations

from core import VERSION as __version__  # noqa: N811 - the name that Python has for it

__all__ = ["__version__"]
