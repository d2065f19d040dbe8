"""A server under real clients in processes of their own, and a nemesis that kills, pauses, cuts and breaks it.

A life is a directory: some rounds, each of a deed of the nemesis and of a time in which every client gets on; then the
clients stop, all is read, and held against what they were told.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from random import Random

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.chaos.checker import Report, check
from tests.crash.chaos.crew import Crew
from tests.crash.chaos.faults import COMPILER, Faults
from tests.crash.chaos.ledger import PARTITIONS, TOPICS
from tests.crash.chaos.nemesis import Nemesis, may_die
from tests.crash.chaos.proxy import Proxy
from tests.crash.chaos.reading import find_unsound, read_all
from tests.crash.chaos.small_disk import SmallDisk
from tests.support.server import Server

ROUNDS_A_LIFE = 10
CLIENTS = ("producer", "producer", "plain", "reader", "reader", "cutter", "teller", "teller", "copier", "copier")
SETTINGS = (
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    "offsets.topic.segment.bytes=1048576",
    "transaction.state.log.segment.bytes=1048576",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "log.retention.check.interval.ms=200",
    "log.flush.offset.checkpoint.interval.ms=300",
    "log.flush.start.offset.checkpoint.interval.ms=300",
    "log.cleaner.backoff.ms=200",
    "log.segment.delete.delay.ms=100",
    "log.message.timestamp.after.max.ms=9223372036854775807",
)


class Chaos:
    """`run` it once."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int = 1,
        clients: tuple[str, ...] = CLIENTS,
        deeds: Collection[str] = (),
        compiler: str | None = COMPILER,
        has_disk: bool = False,
    ) -> None:
        """With `deeds` the nemesis does those only; as of `Nemesis.deeds`. With `has_disk` each life has a small disk
        of its own, which can be filled; only root can make one.
        """
        self._has_disk = has_disk
        self.report = Report()
        self._directory = directory
        self._seed = seed
        self._clients = clients
        self._deeds = deeds
        self._compiler = compiler

    def run(self, rounds: int) -> Report:
        """A life for each `ROUNDS_A_LIFE` of them; its directory goes where nothing was wrong."""
        number = 0
        while self.report.rounds < rounds:
            to_do = min(rounds - self.report.rounds, ROUNDS_A_LIFE)
            self.report.rounds += to_do
            random = Random(f"{self._seed} {number}")
            life = _Life(self._directory / f"life-{number}", random, self._clients, self._compiler, self.report)
            with SmallDisk(life.directory / "data") if self._has_disk else contextlib.nullcontext() as disk:
                life.run(to_do, self._deeds)
                if disk is not None:
                    disk.is_kept = life.has_problems
            number += 1
            if not life.has_problems:
                shutil.rmtree(life.directory)
        return self.report


class _Life:
    def __init__(
        self, directory: Path, random: Random, clients: tuple[str, ...], compiler: str | None, report: Report
    ) -> None:
        directory.mkdir()
        self.directory = directory
        self._random = random
        self._report = report
        self._problems_before = len(report.problems)
        self._faults = Faults(directory, directory / "data", compiler=compiler)
        self._journal = (directory / "journal").open("w", buffering=1)
        self._crew = Crew(directory, clients, random, stuck=report.stuck, note=self._note, problem=self._problem)

    def run(self, rounds: int, deeds: Collection[str]) -> None:
        """What fails in the middle, such as a start, is a problem too."""
        with Proxy(self._random.randrange(1 << 30)) as proxy:
            self._proxy = proxy
            options = [option for setting in SETTINGS for option in ("--set", setting)]
            self._server = Server(
                self.directory / "data",
                "--advertise", proxy.address, *options,
                command=self._faults.command,
                environment=self._faults.environment,
            )  # fmt: skip
            self._nemesis = Nemesis(self._server, self._faults, proxy, self._random, self._verify)
            try:
                self._live(rounds, deeds)
                self._check(proxy.address)
                proxy.target = None
                self._server.stop()
                self._ensure_sound()
            except (AssertionError, KafkaException) as error:
                self._problem(repr(error)[-2000:])
            finally:
                self._crew.kill()
                self._server.kill()
        self._report.faults += self._faults.injected
        self._report.cuts += proxy.cuts
        self._journal.close()

    def _live(self, rounds: int, deeds: Collection[str]) -> None:
        self._server.start()
        self._proxy.target = self._server.host_and_port
        self._make_topics()
        self._crew.start(self._proxy.address)
        self._wait_for_progress()
        for _ in range(rounds):
            self._round(self._random.choice(list(deeds or self._nemesis.deeds)))
        self._crew.stop()

    @property
    def has_problems(self) -> bool:
        return len(self._report.problems) > self._problems_before

    def _note(self, text: str) -> None:
        self._journal.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    def _problem(self, text: str) -> None:
        self._note(f"PROBLEM {text}")
        self._report.problems.append(f"{self.directory.name}: {text}")

    def _make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._server.address})
        topics = [NewTopic(name, PARTITIONS, 1, config=config) for name, config in TOPICS.items()]
        for future in admin.create_topics(topics).values():
            future.result()

    # --- a round

    def _round(self, deed: str) -> None:
        self._report.deeds[deed] += 1
        self._note(f"{deed} ..")
        self._note(f"{deed}: {self._nemesis.strike(deed)}")
        process = self._server.process
        if process is not None and process.poll() is not None:
            if not may_die(deed):
                self._problem(f"the server ended with {process.poll()} by {deed}")
            self._nemesis.start()
        self._wait_for_progress()

    def _wait_for_progress(self) -> None:
        self._crew.wait_for_progress(self._ensure_running)

    def _ensure_running(self) -> None:
        process = self._server.process
        if process is not None and process.poll() is not None:
            self._problem(f"the server ended by itself with {process.poll()}")
            self._nemesis.start()

    def _verify(self) -> None:
        """Before a start, of the directory as the server left it."""
        self._ensure_sound(was_killed=True)

    def _ensure_sound(self, *, was_killed: bool = False) -> None:
        if wrong := find_unsound(self.directory / "data", was_killed=was_killed):
            self._problem(f"verify {wrong}")

    # --- the end

    def _check(self, address: str) -> None:
        ledger = self._crew.ledger()
        found = read_all(address, self._problem)
        for problem in check(ledger, found):
            self._problem(problem)
        self._report.count(ledger, found)
