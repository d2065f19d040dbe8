"""Where a partition begins and how far it may be read."""

from __future__ import annotations

from typing import NamedTuple


class Watermarks(NamedTuple):
    """Those of a partition, from when it was read last."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
