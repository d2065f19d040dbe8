"""The bytes that a start cut off a log's end and kept beside it: `<segment>.log.cut-at-<position>`, a name that Kafka's
loader passes over.

The file holds the log's bytes from that position on. Segments after it are kept whole, as `cut-at-0`. A second file of
one name gets a number, `-2`, and so on: no file that was set aside is overwritten.

The indexes of a segment whose log is gone are kept in the same way, `<segment>.index.cut-at-0`, if the log ends before
it: new records get its offsets, and only the indexes show the loss. If a log ended before offsets that other files knew
of, `<known end>.snapshot.cut-at-<log end>`, which names two offsets, is the snapshot that knew them, or empty.
"""

from __future__ import annotations

import filecmp
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from core.files.file_names import SEGMENT_SUFFIXES, is_file, parse_offset_file_name
from core.forensics.known_offsets_of_directory import index_end

CUT_AT = ".cut-at-"
"""In the name of every such file, and of no other."""

_NAME = r"(\d{20}\.log)\.cut-at-(\d+)(?:-(\d+))?"
_SET_ASIDE = r"\d{20}\.log\.(?:cut-at-\d+(?:-\d+)?|before-recovery-\d+)"
_INDEX_NAME = r"(\d{20})(\.index|\.timeindex|\.txnindex)\.cut-at-0(?:-(\d+))?"
_END_NAME = r"(\d{20})\.snapshot\.cut-at-(\d+)"
"""Patterns, which few folders need: they are compiled when a name may match."""


class CutOffTail(NamedTuple):
    """A file with the bytes of the log of that base offset from `position` on. `number` is 1 unless it is a second file
    of that name.
    """

    base_offset: int
    position: int
    number: int
    path: Path


def find_cut_off_tails(directory: Path) -> list[CutOffTail]:
    """Returns the tails in order of base offsets and positions. Raises OSError if the folder can't be read."""
    found = []
    for match, path in _find_files(directory, _NAME):
        parsed = parse_offset_file_name(match[1])
        if parsed is not None:
            found.append(CutOffTail(parsed[0], int(match[2]), int(match[3] or 1), path))
    return sorted(found)


def _find_files(directory: Path, pattern: str) -> Iterator[tuple[re.Match[str], Path]]:
    for entry in os.scandir(directory):
        match = re.fullmatch(pattern, entry.name) if CUT_AT in entry.name else None
        if match is not None and is_file(entry):
            yield match, directory / entry.name


class LostEnd(NamedTuple):
    """Offsets [start, end) at a log's end that were gone at a start, by the files `paths` that it set aside. There may
    have been more if it `is_segment`: one whose log was gone, and whose indexes the files are.
    """

    start: int
    end: int
    paths: tuple[Path, ...]
    is_segment: bool


def find_lost_ends(directory: Path) -> list[LostEnd]:
    """Returns lost ends in order, each offset once: segments come first. Raises OSError for an unreadable folder."""
    segments = _find_lost_segments(directory)
    ends = []
    for match, path in _find_files(directory, _END_NAME):
        start, end = int(match[2]), int(match[1])
        start = max([start, *(one.end for one in segments if start <= one.start < end)])
        ends += [LostEnd(start, end, (path,), is_segment=False)] if start < end else []
    return sorted(segments + ends)


def _find_lost_segments(directory: Path) -> list[LostEnd]:
    found = defaultdict[tuple[int, int], list[tuple[int, Path]]](list)
    for match, path in _find_files(directory, _INDEX_NAME):
        base_offset = int(match[1])
        end_offset = index_end(path, match[2], base_offset)
        found[base_offset, int(match[3] or 1)].append((end_offset, path))
    return [
        LostEnd(base_offset, max(end for end, _ in files), tuple(sorted(path for _, path in files)), is_segment=True)
        for (base_offset, _), files in sorted(found.items())
    ]


def cut_off_path(file: Path, position: int, same_as: Path | None = None) -> Path:
    """Returns where to keep bytes cut off a log, or an index of a log that is gone: a free name, or that of a file with
    the same bytes as `same_as`, which a killed start left.
    """
    assert file.name.endswith(SEGMENT_SUFFIXES), file
    first = file.with_name(f"{file.name}{CUT_AT}{position}")
    for number in count(1):
        path = first if number == 1 else first.with_name(f"{first.name}-{number}")
        if not os.path.lexists(path) or (same_as is not None and filecmp.cmp(path, same_as, shallow=False)):
            return path
    raise AssertionError  # `count` does not end


def lost_end_path(snapshot: Path, log_end: int) -> Path:
    """Returns the path of the proof that the log, which ends at `log_end`, reached up to the snapshot's offset."""
    return snapshot.with_name(f"{snapshot.name}.cut-at-{log_end}")


def is_proof_of_lost_end(name: str) -> bool:
    """Says whether a start set it aside because the log did not reach that far, or its segment was gone."""
    return re.fullmatch(_INDEX_NAME, name) is not None or re.fullmatch(_END_NAME, name) is not None


def is_set_aside_log(name: str) -> bool:
    """Says whether it is a log that a start or a recovery set aside, whole or in part."""
    return re.fullmatch(_SET_ASIDE, name) is not None
