"""Damages a partition's folder at random, as disks, copies, people and file systems do; says in words what it did.

`wreck` acts on a copy of a sound folder and on the checkpoints beside it in the data directory. It knows nothing of the
code that is to find the damage: batches are located by the lengths in their frames, in the files as they were before.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tests.support.log_frames import crc32c

_SECTOR = 512
_RECORDS_POSITION = 61
_CONTROL = 0x20
_UNTOUCHED = {".lock", "meta.properties"}
"""Files of the data directory that hold nothing of a log."""


@dataclass(frozen=True)
class _Place:
    """A batch of an intact file: bytes [position, end)."""

    path: Path
    position: int
    end: int
    data: bytes

    def __str__(self) -> str:
        offset, _ = struct.unpack_from(">qi", self.data)
        return f"the batch of offset {offset} at {self.path.name}:{self.position}-{self.end}"


def wreck(directory: Path, random: Random, others: list[Path] | None = None) -> str:
    """One to three kinds of damage; what they are. `others`: logs of other partitions, of which bytes may come here."""
    wrecker = _Wrecker(directory, random, others or [])
    count = random.choice((1, 1, 1, 2, 3))
    return "; ".join(wrecker.damage() for _ in range(count))


def wreck_files(directory: Path, random: Random) -> str:
    """One damage as people and file systems do it: files are copied, renamed, swapped, cut and lost. What it is, or ""
    if there is nothing that it could be done to.
    """
    wrecker = _Wrecker(directory, random, [])
    kinds = (
        wrecker.copy_under_a_second_name,
        wrecker.delete_segment,
        wrecker.swap_segments,
        wrecker.cut_where_a_batch_ends,
        wrecker.delete_transaction_index,
        partial(wrecker.delete_all, "snapshot"),
        partial(wrecker.delete_all, "txnindex"),
        wrecker.rename_segment,
        wrecker.cut_full_log,
        wrecker.delete_checkpoint,
    )
    return random.choice(kinds)()


def apply(directory: Path, kind: str, seed: int, others: list[Path] | None = None) -> str:
    """One damage of a kind by its name, for an example that is to be kept."""
    wrecker = _Wrecker(directory, Random(seed), others or [])
    return wrecker.kinds[kind]()


class _Wrecker:
    def __init__(self, directory: Path, random: Random, others: list[Path]) -> None:
        self._directory = directory
        self._random = random
        self._others = others
        self._places = [place for path in self._logs() for place in _places(path)]
        weighted: list[tuple[int, Callable[[], str]]] = [
            (4, self.flip_bit),
            (4, self.flip_bit_of_header),
            (2, self.cut_file),
            (3, self.zero_bytes),
            (2, self.write_garbage),
            (2, self.append_bytes),
            (2, self.swap_neighbours),
            (2, self.swap_distant),
            (2, self.repeat_in_place),
            (2, self.repeat_elsewhere),
            (2, self.take_out),
            (3, self.stray_write),
            (1, self.foreign_write),
            (2, self.delete_file),
            (1, self.delete_log),
            (1, self.swap_logs),
            (2, self.copy_segment),
        ]
        self.kinds = {function.__name__: function for _, function in weighted}
        self.kinds["write_undecodable"] = self.write_undecodable  # by its name alone: those above are drawn by seeds
        self.kinds["cut_at_batch"] = self.cut_at_batch
        self.kinds["move_log_start"] = self.move_log_start
        self.kinds["move_high_watermark"] = self.move_high_watermark
        self._weighted = [function for weight, function in weighted for _ in range(weight)]

    def damage(self) -> str:
        """Of the first kind that finds something to damage."""
        done = ""
        while not done and self._files():
            done = self._random.choice(self._weighted)()
        return done or "nothing is left to damage"

    # --- files and batches

    def _logs(self) -> list[Path]:
        return sorted(path for path in self._directory.glob("*.log") if path.is_file())

    def _files(self) -> list[Path]:
        """The folder's, and the data directory's if it is in one."""
        beside = [path for path in self._directory.parent.iterdir() if path.name not in _UNTOUCHED]
        is_in_directory = (self._directory.parent / "meta.properties").exists()
        found = [*self._directory.iterdir(), *(beside if is_in_directory else ())]
        return sorted(path for path in found if path.is_file() and path.stat().st_size)

    def _file(self) -> Path | None:
        """Logs more often than others."""
        logs = [path for path in self._logs() if path.stat().st_size]
        some = logs if logs and self._random.random() < 0.6 else self._files()
        return self._random.choice(some) if some else None

    def _full_log(self) -> Path | None:
        logs = [path for path in self._logs() if path.stat().st_size]
        return self._random.choice(logs) if logs else None

    def _place(self) -> _Place | None:
        places = [place for place in self._places if place.path.exists()]
        return self._random.choice(places) if places else None

    def _run(self) -> list[_Place]:
        """One batch of a file, or a few that follow one another."""
        first = self._place()
        if first is None:
            return []
        of_file = [place for place in self._places if place.path == first.path]
        number = of_file.index(first)
        return of_file[number : number + self._random.choice((1, 1, 2, 3, 5))]

    # --- bits and bytes

    def flip_bit(self) -> str:
        path = self._file()
        return "" if path is None else self._flip(path, self._random.randrange(path.stat().st_size))

    def flip_bit_of_header(self) -> str:
        """Of the fields that no checksum covers, and of those that say how far a batch goes."""
        place = self._place()
        if place is None:
            return ""
        start, end = self._random.choice(((0, 8), (8, 12), (12, 16), (16, 17), (17, 21), (21, 27), (57, 61)))
        at = place.position + self._random.randrange(start, end)
        return self._flip(place.path, at) if at < place.path.stat().st_size else ""

    def _flip(self, path: Path, at: int) -> str:
        data = bytearray(path.read_bytes())
        bit = self._random.randrange(8)
        data[at] ^= 1 << bit
        path.write_bytes(data)
        return f"bit {bit} of byte {at} of {path.name} flipped"

    def cut_file(self) -> str:
        return self._cut(self._file())

    def cut_full_log(self) -> str:
        return self._cut(self._full_log())

    def _cut(self, path: Path | None) -> str:
        if path is None:
            return ""
        size = self._random.randrange(path.stat().st_size)
        path.write_bytes(path.read_bytes()[:size])
        return f"{path.name} cut at {size}"

    def cut_where_a_batch_ends(self) -> str:
        path = self._full_log()
        if path is None:
            return ""
        end = self._random.choice([0, *(place.end for place in _places(path))])
        path.write_bytes(path.read_bytes()[:end])
        return f"{path.name} cut at {end}, where a batch ends"

    def cut_at_batch(self) -> str:
        """A log that is not the last one, where one of its batches begins."""
        places = [place for place in self._places if place.path != self._logs()[-1]]
        if not places:
            return ""
        place = self._random.choice(places)
        place.path.write_bytes(place.path.read_bytes()[: place.position])
        return f"{place.path.name} cut at {place}"

    def zero_bytes(self) -> str:
        """A sector, or as many bytes anywhere."""
        path = self._file()
        if path is None:
            return ""
        whole = path.read_bytes()
        if self._random.random() < 0.5:
            start, size = self._random.randrange(0, len(whole), _SECTOR), _SECTOR
        else:
            start, size = self._random.randrange(len(whole)), self._random.choice((1, 8, 61, 512, 1500))
        end = min(start + size, len(whole))
        path.write_bytes(whole[:start] + bytes(end - start) + whole[end:])
        return f"bytes {start}-{end} of {path.name} zeroed"

    def write_garbage(self) -> str:
        path = self._file()
        if path is None:
            return ""
        whole = path.read_bytes()
        start = self._random.randrange(len(whole))
        end = min(start + self._random.choice((1, 4, 20, 300, 1024)), len(whole))
        path.write_bytes(whole[:start] + self._random.randbytes(end - start) + whole[end:])
        return f"garbage over bytes {start}-{end} of {path.name}"

    def append_bytes(self) -> str:
        """Garbage, zeros, or the first bytes of a batch."""
        path = self._file()
        if path is None:
            return ""
        size = self._random.choice((1, 11, 12, 17, 61, 200, 512, 1500))
        place = self._place()
        what = self._random.choice(("garbage", "zeros", "a piece of a batch"))
        if what == "zeros":
            junk = bytes(size)
        elif what == "garbage" or place is None:
            junk = self._random.randbytes(size)
        else:
            junk = place.data[: min(size, len(place.data) - 1)]
        path.write_bytes(path.read_bytes() + junk)
        return f"{len(junk)} bytes of {what} appended to {path.name}"

    # --- batches

    def swap_neighbours(self) -> str:
        first = self._place()
        following = next((p for p in self._places if first and (p.path, p.position) == (first.path, first.end)), None)
        return "" if first is None or following is None else self._swap(first, following)

    def swap_distant(self) -> str:
        first, second = self._place(), self._place()
        if first is None or second is None or first.path != second.path or first.position >= second.position:
            return ""
        return self._swap(first, second)

    def _swap(self, first: _Place, second: _Place) -> str:
        whole = first.path.read_bytes()
        between = whole[first.end : second.position]
        data = whole[: first.position] + second.data + between + first.data + whole[second.end :]
        first.path.write_bytes(data)
        return f"{first} and {second} swapped"

    def repeat_in_place(self) -> str:
        run = self._run()
        return self._insert(run, run[-1].path, run[-1].end) if run else ""

    def repeat_elsewhere(self) -> str:
        run, target = self._run(), self._place()
        if not run or target is None:
            return ""
        return self._insert(run, target.path, self._random.choice((target.position, target.end)))

    def _insert(self, run: list[_Place], path: Path, at: int) -> str:
        whole = path.read_bytes()
        path.write_bytes(whole[:at] + b"".join(place.data for place in run) + whole[at:])
        return f"{len(run)} batches from {run[0]} on repeated at {path.name}:{at}"

    def take_out(self) -> str:
        run = self._run()
        if not run:
            return ""
        path = run[0].path
        whole = path.read_bytes()
        path.write_bytes(whole[: run[0].position] + whole[run[-1].end :])
        return f"{len(run)} batches from {run[0]} on taken out"

    def stray_write(self) -> str:
        """A batch over whatever stands anywhere: at a batch's beginning, or not."""
        place, target = self._place(), self._place()
        if place is None or target is None:
            return ""
        is_at_batch = self._random.random() < 0.5
        at = target.position if is_at_batch else self._random.randrange(target.position, target.end)
        self._write_over(target.path, at, place.data)
        return f"{place} written over {target.path.name}:{at}"

    def foreign_write(self) -> str:
        """Bytes of another partition's log."""
        target = self._place()
        if target is None or not self._others:
            return ""
        other = self._random.choice(self._others)
        foreign = other.read_bytes()
        batches = _places(other)
        if batches and self._random.random() < 0.5:
            batch = self._random.choice(batches)
            start, end = batch.position, batch.end
        else:
            start = self._random.randrange(max(len(foreign), 1))
            end = min(start + self._random.choice((100, 512, 1024)), len(foreign))
        at = self._random.choice((target.position, self._random.randrange(target.position, target.end)))
        self._write_over(target.path, at, foreign[start:end])
        return f"bytes {start}-{end} of {other.parent.name}/{other.name} written over {target.path.name}:{at}"

    def _write_over(self, path: Path, at: int, data: bytes) -> None:
        """No further than a file's end in most cases, as a disk does it."""
        whole = path.read_bytes()
        end = at + len(data)
        if end > len(whole) and self._random.random() < 0.8:
            data = data[: max(len(whole) - at, 0)]
        path.write_bytes(whole[:at] + data + whole[end:])

    def write_undecodable(self) -> str:
        """The first byte of a batch's records changed, under a right checksum."""
        places = [place for place in self._places if place.data[16] == 2 and len(place.data) > _RECORDS_POSITION]
        places = [place for place in places if not place.data[22] & _CONTROL]
        if not places:
            return ""
        place = self._random.choice(places)
        data = bytearray(place.data)
        data[_RECORDS_POSITION] = 0x01  # a length of -1, or no beginning of any codec
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
        self._write_over(place.path, place.position, bytes(data))
        return f"{place} written so that it does not decode"

    # --- checkpoints

    def move_log_start(self) -> str:
        """One digit of the partition's line in the data directory's `log-start-offset-checkpoint`; a line where there
        is none.
        """
        return self._move("log start", "log-start-offset-checkpoint")

    def move_high_watermark(self) -> str:
        """The same of `replication-offset-checkpoint`."""
        return self._move("high watermark", "replication-offset-checkpoint")

    def _move(self, what: str, name_of_file: str) -> str:
        path = self._directory.parent / name_of_file
        if not path.exists():
            return ""
        topic, _, partition = self._directory.name.rpartition("-")
        entries = dict(line.rsplit(" ", 1) for line in path.read_text().splitlines()[2:])
        name = f"{topic} {partition}"
        end = max((_last_offset(place) for place in self._places), default=0) + 1
        before = entries.get(name, str(self._random.randrange(end + 1)))
        at = self._random.randrange(len(before))
        after = before[:at] + self._random.choice("0123456789") + before[at + 1 :]
        entries[name] = str(int(after))
        lines = [f"{name} {offset}" for name, offset in entries.items()]
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
        return f"{what} {before} written as {after}"

    # --- files

    def delete_file(self) -> str:
        return self._delete([path for path in self._files() if path.suffix != ".log"])

    def delete_log(self) -> str:
        """But for the last one that is there: of a folder without a log there is nothing to read."""
        logs = self._logs()
        return self._delete(logs) if len(logs) > 1 else ""

    def delete_transaction_index(self) -> str:
        return self._delete(sorted(self._directory.glob("*.txnindex")))

    def delete_checkpoint(self) -> str:
        return self._delete(sorted(self._directory.parent.glob("*-checkpoint")))

    def _delete(self, files: list[Path]) -> str:
        if not files:
            return ""
        path = self._random.choice(files)
        path.unlink()
        return f"{path.name} deleted"

    def delete_all(self, suffix: str) -> str:
        found = list(self._directory.glob(f"*.{suffix}"))
        for path in found:
            path.unlink()
        return f"all .{suffix} deleted" if found else ""

    def delete_segment(self) -> str:
        logs = self._logs()
        if len(logs) < 2:
            return ""
        path = self._random.choice(logs)
        for file in self._directory.glob(f"{path.stem}.*"):
            file.unlink()
        return f"{path.name} and all its files deleted"

    def swap_logs(self) -> str:
        logs = self._logs()
        return self._swap_files(*self._random.sample(logs, 2), (".log",)) if len(logs) > 1 else ""

    def swap_segments(self) -> str:
        logs = self._logs()
        if sum(bool(path.stat().st_size) for path in logs) < 2:
            return ""
        one, other = self._random.sample(logs, 2)
        all_of_them = (".log", ".index", ".timeindex", ".txnindex")
        suffixes = self._random.choice(((".log",), all_of_them, (".txnindex",), (".log", ".txnindex")))
        return self._swap_files(one, other, suffixes)

    def _swap_files(self, one: Path, other: Path, suffixes: tuple[str, ...]) -> str:
        for suffix in suffixes:
            first, second = one.with_suffix(suffix), other.with_suffix(suffix)
            if first.exists() and second.exists():
                data = first.read_bytes()
                first.write_bytes(second.read_bytes())
                second.write_bytes(data)
        return f"{', '.join(suffixes)} of {one.name} and {other.name} swapped"

    def rename_segment(self) -> str:
        path = self._full_log()
        if path is None:
            return ""
        new = int(path.stem) + self._random.choice((-1, 1, 3))
        if new < 0 or (self._directory / f"{new:020}.log").exists():
            return ""
        for file in list(self._directory.glob(f"{path.stem}.*")):
            file.rename(file.with_name(f"{new:020}{file.suffix}"))
        return f"{path.name} and all its files renamed to {new}"

    def copy_under_a_second_name(self) -> str:
        """The log and some of its files."""
        path = self._full_log()
        if path is None:
            return ""
        new = int(path.stem) + self._random.choice((1, 1, 2, 5, 10))
        for source in self._directory.glob(f"{path.stem}.*"):
            target = source.with_name(f"{new:020}{source.suffix}")
            if (source.suffix == ".log" or self._random.random() < 0.3) and not target.exists():
                target.write_bytes(source.read_bytes())
        return f"{path.name} copied as {new}"

    def copy_segment(self) -> str:
        """Under a name within its offsets, or behind them; the log alone, or its indexes too."""
        path = self._full_log()
        if path is None:
            return ""
        base = int(path.stem)
        span = max((_last_offset(place) for place in self._places), default=0) - base + 1
        new = f"{base + self._random.randrange(1, max(span, 1) + 60):020d}"
        for source in sorted(self._directory.glob(f"{path.stem}.*")):
            is_wanted = source.suffix == ".log" or (
                source.suffix in (".index", ".timeindex") and self._random.random() < 0.5
            )
            target = source.with_name(new + source.suffix)
            if is_wanted and not target.exists():
                target.write_bytes(source.read_bytes())
        return f"{path.name} copied to {new}.log"


def _places(path: Path) -> list[_Place]:
    """The batches of a sound log; those before the end of one that is not."""
    data = path.read_bytes()
    found = []
    position = 0
    while re.fullmatch(r"\d{20}\.log", path.name) and position + 12 <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        end = position + 12 + length
        if length < 14 or end > len(data):
            break
        found.append(_Place(path, position, end, data[position:end]))
        position = end
    return found


def _last_offset(place: _Place) -> int:
    (offset,) = struct.unpack_from(">q", place.data)
    (delta,) = struct.unpack_from(">i", place.data, 23) if place.data[16] == 2 else (0,)
    return int(offset + delta)
