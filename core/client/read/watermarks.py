"""The start of a partition and the offsets up to which it may be read."""

from __future__ import annotations

from typing import NamedTuple


class Watermarks(NamedTuple):
    """Watermarks of a partition when it was read last."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
