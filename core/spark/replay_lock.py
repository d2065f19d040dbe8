"""Lets one driver at a time have a replay's folder, and gives it and its tasks the right to write there.

    URL/_plog/lock-7.json   who has the folder (`LockOwner`); in a plain folder held by flock while the owner lives
    URL/_plog/writing-7/..  what the owner and its tasks are still writing

Each owner has a number, and the greatest is valid. `lock-<number>.json` is created only if it is absent: of two drivers
that want a folder, one gets it. An owner that ends gives the next number to nobody (`is_released`), so that nothing of
its own is at work after it either.

An owner that ended without that is recognized on its own machine: its flock is free, and its process is gone. If the
owner is on another machine, or the file system has no flock, plog can't tell; the user must say so (`take_over`). If
the user is wrong, the other owner loses its work, and no record is lost.

A file that the owner or its tasks write begins in the number's folder, and is renamed from there to its place when it
is whole. The next owner removes the folders of lower numbers before it looks which units are done. In a plain folder
the rename itself checks the number so: a task that still runs for an older number, on whatever machine, has nothing to
rename, and no folder to rename it to. Elsewhere the driver alone renames, and looks at the number before.

Earlier releases had the file in a folder: `lock-7/owner.json`.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from core.common.errors import AccessError, DirectoryLockedError, PlogError
from core.spark.lake_folder import LakeFolder

STATE = "_plog"


@dataclass(frozen=True, slots=True)
class LockOwner:
    """A driver, as it describes itself. `started` tells it from other processes with the same `pid` (`process_start`);
    `is_released`: it has ended, and another driver may take the folder.
    """

    host: str
    pid: int
    started: int
    since: str
    is_released: bool = False

    @classmethod
    def here(cls) -> LockOwner:
        """Describes this process."""
        pid, since = os.getpid(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return cls(socket.gethostname(), pid, process_start(pid), since)

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, which began at {self.since}" if self.pid else "an unknown process"


UNKNOWN_OWNER = LockOwner(host="", pid=0, started=0, since="")


class ReplayLock:
    """Held from `acquire` to `release`; owned by one task. Raises what the folder raises."""

    def __init__(self, folder: LakeFolder, *, single_writer: bool = False) -> None:
        """`single_writer`: the user knows that no other driver writes to a store that can't keep two apart."""
        self._folder = folder
        self._single_writer = single_writer
        self.number = 0
        self._has_made_folder = False
        self._leaves_nothing = False

    @property
    def beside(self) -> str:
        """Returns the folder that files begin in. Raises AccessError if the lock is not held."""
        if not self.number:
            raise AccessError(
                f"{self._folder.where} is not locked: a replay writes into its folder only while it holds the lock",
                where=self._folder.where,
            )
        return _beside(self.number)

    def find(self) -> tuple[int, str, LockOwner | None]:
        """Finds the valid number, its file and its owner; 0 and None if the folder never had an owner."""
        for number in sorted({number for _, number in self._names()}, reverse=True):
            for name in (_file(number), f"{STATE}/lock-{number}/owner.json"):
                if (content := self._folder.read(name)) is not None:
                    try:
                        return number, name, msgspec.json.decode(content, type=LockOwner)
                    except ValueError:
                        return number, name, UNKNOWN_OWNER
        return 0, "", None

    def _names(self) -> Iterator[tuple[str, int]]:
        """Yields the names of all locks and of what was written under them, with their numbers."""
        for name in self._folder.names(STATE) or ():
            if found := re.fullmatch(r"lock-(\d+)(\.json)?|writing-(\d+)", name):
                yield name, int(found[1] or found[3])

    def acquire(self, *, take_over: bool = False) -> LockOwner | None:
        """Returns the owner that the lock was taken over from, if that owner did not release it. Raises
        DirectoryLockedError, with nothing written, if an owner lives, or may live and `take_over` is not set;
        AccessError for a store that can't keep two drivers apart.
        """
        if not (self._folder.is_exclusive or self._single_writer):
            raise AccessError(
                f"{self._folder.where} can't keep two replays apart: the store does not create a file only if it is "
                "absent",
                where=self._folder.where,
                hint="if no other replay writes there: the same command with --single-writer",
            )
        self._has_made_folder = self._folder.names() is None
        while True:
            number, name, owner = self.find()
            former = None if owner is None or owner.is_released else owner
            if former is not None:
                self._ensure_takeable(number, name, former, take_over=take_over)
            number += 1
            if not self._folder.create(_file(number), encode(asdict(LockOwner.here())), holds=True):
                continue
            try:
                if self.find()[0] == number:  # else it was given and removed meanwhile
                    self._folder.begin_in(_beside(number))
                    self.number = number
                    return former
            finally:
                if not self.number:
                    self._folder.let_go()
                    self._folder.delete(_file(number))

    def _ensure_takeable(self, number: int, name: str, owner: LockOwner, *, take_over: bool) -> None:
        is_held = self._folder.is_held(name)
        is_own = owner.pid == os.getpid() and self._folder.has_locks  # of which the flock alone tells whether it lives
        runs = not is_own and is_running(owner.pid, owner.started)
        lives = owner.is_here and bool(is_held or runs)
        is_gone = owner.is_here and is_held is False and runs is False
        if is_gone or (take_over and not lives):
            return
        hint = "wait for it to end, or stop it: the same command goes on from there"
        if not lives:
            hint = "if it is not there any more: the same command with --take-over goes on from there"
        where = self._folder.where
        said = f"{where} is being replayed into by {owner} (lock {number})"
        raise DirectoryLockedError(said, where=where, holder=str(owner), hint=hint)

    def ensure_held(self) -> None:
        """Raises DirectoryLockedError if another driver has the folder now; AccessError if nobody locked it here."""
        held = self.beside and self.number
        number, _, owner = self.find()
        if number == held:
            return
        holder = "another replay" if owner is None or owner.is_released else str(owner)
        raise DirectoryLockedError(
            f"{self._folder.where} was taken over by {holder}: lock {held} is not valid any more",
            where=self._folder.where,
            holder=holder,
            hint="the same command goes on from there, when the other one has ended",
        )

    def remove_former(self) -> None:
        """Removes the locks of former owners, and what they and their tasks were writing."""
        for name, number in list(self._names()):
            if number < self.number:
                self._folder.delete(f"{STATE}/{name}")

    def leave_nothing(self) -> None:
        """Nothing was written under the lock: of a folder's first one `release` leaves nothing in the folder."""
        self._leaves_nothing = True

    def release(self) -> None:
        """Gives the folder back, if it is held: after that, no task that began under the lock can place a file."""
        number, released = self.number, encode(asdict(replace(LockOwner.here(), is_released=True)))
        try:
            with suppress(PlogError):  # it was taken over; or the next owner sees that this one is gone
                self.ensure_held()
                if self._leaves_nothing and number == 1:
                    self._folder.let_go()
                    self._folder.delete(STATE)
                    if self._has_made_folder and not self._folder.names():
                        self._folder.delete("")
                elif self._folder.create(_file(number + 1), released):
                    self._folder.let_go()
                    self._folder.delete(_beside(number))
                    self._folder.delete(_file(number))
        finally:
            self._folder.let_go()
            self.number = 0


def _file(number: int) -> str:
    return f"{STATE}/lock-{number}.json"


def _beside(number: int) -> str:
    return f"{STATE}/writing-{number}"


def encode(fields: dict[str, Any]) -> bytes:
    """Returns what a file of state has."""
    return json.dumps(fields, indent=1).encode() + b"\n"


def is_running(pid: int, started: int) -> bool | None:
    """Says whether the process runs on this machine; None if it can't be known: another may have the number by now."""
    now = process_start(pid)
    if now and started:
        return now == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return None
    return False if started else None  # with a /proc it is one that has ended, and was not waited for


def process_start(pid: int) -> int:
    """Returns a process's start in clock ticks since the machine's; 0 if the process is gone, or without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in ("Z", "X") else int(fields[19])
