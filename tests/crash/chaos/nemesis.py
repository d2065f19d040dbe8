"""What is done to a server, drawn from a seed. Each of the methods in `DEEDS` does its harm, and has mended it when it
returns; the server runs then, or may have died of it where `may_die` says so.
"""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Callable
from random import Random

from tests.crash.chaos.faults import Faults, Kind
from tests.crash.chaos.proxy import Proxy
from tests.crash.chaos.small_disk import filled
from tests.support.server import Server

_PLACES = ("", ".log", ".index", "checkpoint", ".snapshot", "/kept-", "/flushed-", "/tells-", "/keyed-", "/trimmed-",
           "__consumer_offsets", "__transaction_state", "__cluster_metadata")  # fmt: skip
_KINDS = (Kind.READ, Kind.WRITE, Kind.SYNC, Kind.TRUNCATE, Kind.NAMES, Kind.OPEN, Kind.SHORT, Kind.WRITE | Kind.READ,
          ~Kind.SHORT & ~Kind.LOSE & Kind(255))  # fmt: skip
_HOUR_S = 3600


class Nemesis:
    """Owned by one thread. `before_start` is called whenever the server is down, before it starts again."""

    def __init__(
        self, server: Server, faults: Faults, proxy: Proxy, random: Random, before_start: Callable[[], None]
    ) -> None:
        self._server = server
        self._faults = faults
        self._proxy = proxy
        self._random = random
        self._before_start = before_start
        self.deeds: dict[str, Callable[[], str]] = {
            "kill": self.kill,
            "kill twice": self.kill_twice,
            "stop": self.stop,
            "pause": self.pause,
            "cut": self.cut,
            "silence": self.silence,
            "disk": self.disk,
            "disk and kill": self.disk_and_kill,
            "full disk": self.full_disk,
            "pause and kill": self.pause_and_kill,
        }
        if faults.has_clock:
            self.deeds["clock"] = self.clock

    def strike(self, name: str) -> str:
        """Does the deed; gives its details."""
        return self.deeds[name]()

    # --- the process

    def start(self) -> None:
        """Again and again while a disk refuses; AssertionError where it does so though it is well."""
        if self._server.process is not None and self._server.process.poll() is None:
            return
        self._proxy.target = None
        self._before_start()
        self._server.start()
        self._proxy.target = self._server.host_and_port

    def kill(self) -> str:
        self._kill()
        down_s = self._random.choice((0, 0, 0.2, 1.0))
        time.sleep(down_s)
        self.start()
        return f"down for {down_s} s"

    def _kill(self) -> None:
        self._proxy.target = None
        self._server.kill()

    def kill_twice(self) -> str:
        self._kill()
        after_s = self._random.uniform(0, 1.5)
        self._server.start_without_waiting()
        time.sleep(after_s)
        self._server.kill()
        self.start()
        return f"{after_s:.2f} s after its start"

    def stop(self) -> str:
        self._proxy.target = None
        self._server.stop()
        self.start()
        return ""

    def pause(self) -> str:
        seconds = self._random.choice((0.3, 1.0, 2.0, 8.0))
        assert self._server.process is not None
        self._server.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._server.process.send_signal(signal.SIGCONT)
        return f"{seconds} s"

    def pause_and_kill(self) -> str:
        assert self._server.process is not None
        self._server.process.send_signal(signal.SIGSTOP)
        time.sleep(self._random.uniform(0, 1))
        return self.kill()

    # --- the wire

    def cut(self) -> str:
        times = self._random.randint(1, 8)
        for _ in range(times):
            self._proxy.cut(self._random.choice((10, 300, 5000)))
            time.sleep(self._random.uniform(0, 0.4))
        return f"{times} times"

    def silence(self) -> str:
        seconds = self._random.uniform(0.1, 3)
        self._proxy.stop_flow()
        time.sleep(seconds)
        if is_cut := self._random.random() < 0.5:
            self._proxy.cut(300)
        self._proxy.resume_flow()
        return f"{seconds:.1f} s{', cut' if is_cut else ''}"

    # --- the disk

    def disk(self) -> str:
        """Some operations fail; then the server starts again, as partitions that the disk refused need it to."""
        said = self._fail()
        time.sleep(self._random.uniform(0.1, 1.5))
        self._faults.heal()
        if self._random.random() < 0.5:
            self._kill()
        else:
            self._proxy.target = None
            self._server.process.send_signal(signal.SIGTERM)  # type: ignore[union-attr]
            self._server.process.wait()  # type: ignore[union-attr]
        self.start()
        return said

    def _fail(self) -> str:
        kinds = self._random.choice(_KINDS)
        code = self._random.choice((errno.EIO, errno.EIO, errno.ENOSPC))
        ppm = self._random.choice((1_000_000, 300_000, 30_000))
        at_most = self._random.choice((-1, -1, 1, 3, 20))
        match = self._random.choice(_PLACES)
        self._faults.fail(kinds, code, ppm=ppm, at_most=at_most, match=match)
        return f"{kinds!r} {errno.errorcode[code]} {ppm} ppm, at most {at_most}, of {match!r}"

    def disk_and_kill(self) -> str:
        """The disk refuses while the server dies, and while it starts; a person mends it and starts again."""
        said = self._fail()
        time.sleep(self._random.uniform(0, 0.5))
        self._kill()
        self._server.start_without_waiting()
        time.sleep(self._random.uniform(0.3, 2))
        self._faults.heal()
        self._server.kill()
        self.start()
        return said

    def full_disk(self) -> str:
        """No write grows a file, for a while; nobody starts the server again after it."""
        seconds = self._random.uniform(0.2, 2)
        directory = self._server.data_dir
        if not directory.is_mount():
            self._faults.fail(Kind.WRITE, errno.ENOSPC)
            time.sleep(seconds)
            self._faults.heal()
            return f"{seconds:.1f} s"
        with filled(directory) as free_bytes:
            time.sleep(seconds)
        return f"{seconds:.1f} s, {free_bytes} bytes were free"

    # --- the clock

    def clock(self) -> str:
        offset_s = self._random.choice((-24 * _HOUR_S, -_HOUR_S, -5, 5, _HOUR_S, 24 * _HOUR_S, 0))
        self._faults.step_clock(offset_s)
        time.sleep(self._random.uniform(0.3, 1.5))
        return f"{offset_s} s ahead"


def may_die(deed: str) -> bool:
    """Whether a server may give up by itself."""
    return "disk" in deed
