"""Damages a partition's folder as people and file systems do it: files are copied, renamed, swapped, cut and lost."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from random import Random

_ALL = (".log", ".index", ".timeindex", ".txnindex")


def wreck_files(directory: Path, random: Random) -> str:
    """One damage; what it is, or "" if there is nothing that it could be done to."""
    kinds = (
        _copy_under_a_second_name,
        _delete_segment,
        _swap,
        _cut_at_batch,
        _delete_transaction_index,
        _delete_snapshots,
        _delete_transaction_indexes,
        _rename,
        _cut,
        _delete_checkpoint,
    )
    logs = sorted(directory.glob("*.log"))
    kind = random.choice(kinds)
    return kind(directory, random, logs, [path for path in logs if path.stat().st_size])


def _copy_under_a_second_name(directory: Path, random: Random, _logs: list[Path], full: list[Path]) -> str:
    if not full:
        return ""
    path = random.choice(full)
    new = int(path.stem) + random.choice((1, 1, 2, 5, 10))
    for source in directory.glob(f"{path.stem}.*"):
        if source.suffix == ".log" or random.random() < 0.3:
            target = directory / f"{new:020}{source.suffix}"
            if not target.exists():
                shutil.copy(source, target)
    return f"{path.name} copied as {new}"


def _delete_segment(directory: Path, random: Random, logs: list[Path], _full: list[Path]) -> str:
    if len(logs) < 2:
        return ""
    path = random.choice(logs)
    for file in directory.glob(f"{path.stem}.*"):
        file.unlink()
    return f"{path.name} and all its files deleted"


def _swap(_directory: Path, random: Random, logs: list[Path], full: list[Path]) -> str:
    if len(full) < 2:
        return ""
    one, other = random.sample(logs, 2)
    suffixes = random.choice(((".log",), _ALL, (".txnindex",), (".log", ".txnindex")))
    for suffix in suffixes:
        first, second = one.with_suffix(suffix), other.with_suffix(suffix)
        if first.exists() and second.exists():
            data = first.read_bytes()
            first.write_bytes(second.read_bytes())
            second.write_bytes(data)
    return f"{', '.join(suffixes)} of {one.name} and {other.name} swapped"


def _cut_at_batch(_directory: Path, random: Random, _logs: list[Path], full: list[Path]) -> str:
    if not full:
        return ""
    path = random.choice(full)
    data = path.read_bytes()
    end = random.choice(_ends(data))
    path.write_bytes(data[:end])
    return f"{path.name} cut at {end}, where a batch ends"


def _ends(data: bytes) -> list[int]:
    ends = [0]
    while ends[-1] + 12 <= len(data):
        (length,) = struct.unpack_from(">i", data, ends[-1] + 8)
        if length < 0 or ends[-1] + 12 + length > len(data):
            break
        ends.append(ends[-1] + 12 + length)
    return ends


def _delete_transaction_index(directory: Path, random: Random, _logs: list[Path], _full: list[Path]) -> str:
    indexes = sorted(directory.glob("*.txnindex"))
    if not indexes:
        return ""
    path = random.choice(indexes)
    path.unlink()
    return f"{path.name} deleted"


def _delete_snapshots(directory: Path, _random: Random, _logs: list[Path], _full: list[Path]) -> str:
    return _delete_all(directory, "snapshot")


def _delete_transaction_indexes(directory: Path, _random: Random, _logs: list[Path], _full: list[Path]) -> str:
    return _delete_all(directory, "txnindex")


def _delete_all(directory: Path, suffix: str) -> str:
    found = list(directory.glob(f"*.{suffix}"))
    for path in found:
        path.unlink()
    return f"all .{suffix} deleted" if found else ""


def _rename(directory: Path, random: Random, _logs: list[Path], full: list[Path]) -> str:
    if not full:
        return ""
    path = random.choice(full)
    new = int(path.stem) + random.choice((-1, 1, 3))
    if new < 0 or (directory / f"{new:020}.log").exists():
        return ""
    for file in list(directory.glob(f"{path.stem}.*")):
        file.rename(directory / f"{new:020}{file.suffix}")
    return f"{path.name} and all its files renamed to {new}"


def _cut(_directory: Path, random: Random, _logs: list[Path], full: list[Path]) -> str:
    if not full:
        return ""
    path = random.choice(full)
    data = path.read_bytes()
    size = random.randrange(len(data))
    path.write_bytes(data[:size])
    return f"{path.name} cut at {size}"


def _delete_checkpoint(directory: Path, random: Random, _logs: list[Path], _full: list[Path]) -> str:
    found = sorted(directory.parent.glob("*-checkpoint"))
    if not found:
        return ""
    path = random.choice(found)
    path.unlink()
    return f"{path.name} deleted"
