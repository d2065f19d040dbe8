"""What a start cut off a log's end and kept beside it: `<segment>.log.cut-at-<position>`, a name that Kafka's loader
passes over.

The file holds the log's bytes from that position on. Segments after it are kept whole, as `cut-at-0`. A second file of
one name gets a number, `-2`, and so on: nothing that was set aside is written over.
"""

from __future__ import annotations

import filecmp
import os
import re
from itertools import count
from pathlib import Path
from typing import NamedTuple

from core.log.file_names import LOG_SUFFIX, is_file, parse_offset_file_name

_NAME = re.compile(r"(\d{20}\.log)\.cut-at-(\d+)(?:-(\d+))?")
_SET_ASIDE = re.compile(r"\d{20}\.log\.(?:cut-at-\d+(?:-\d+)?|before-recovery-\d+)")


class CutOff(NamedTuple):
    """A file with the bytes of the log of that base offset from `position` on. `number` is 1 unless it is a second file
    of that name.
    """

    base_offset: int
    position: int
    number: int
    path: Path


def find_cut_offs(directory: Path) -> list[CutOff]:
    """Gives them in order of base offsets and positions. Raises OSError if the folder can't be read."""
    found = []
    for entry in os.scandir(directory):
        match = _NAME.fullmatch(entry.name)
        parsed = parse_offset_file_name(match[1]) if match else None
        if match is not None and parsed is not None and is_file(entry):
            found.append(CutOff(parsed[0], int(match[2]), int(match[3] or 1), directory / entry.name))
    return sorted(found)


def cut_off_path(log: Path, position: int, same_as: Path | None = None) -> Path:
    """Gives where to keep what is cut off a log: a name that is free, or that of a file which holds the same as
    `same_as`, and which a start left that was killed.
    """
    assert log.name.endswith(LOG_SUFFIX), log
    first = log.with_name(f"{log.name}.cut-at-{position}")
    for number in count(1):
        path = first if number == 1 else first.with_name(f"{first.name}-{number}")
        if not os.path.lexists(path) or (same_as is not None and filecmp.cmp(path, same_as, shallow=False)):
            return path
    raise AssertionError  # `count` does not end


def is_set_aside_log(name: str) -> bool:
    """Says whether it is a log that a start or a recovery set aside, whole or in part."""
    return _SET_ASIDE.fullmatch(name) is not None
