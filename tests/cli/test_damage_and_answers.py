"""Commands that ask the engine of a directory tell of the damage that touches their answer, and of no other."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.partitions import lazy_logs
from core.common.errors import DamagedAnswerError
from core.log.log_manager import LogManager
from core.pipeline.session import Session
from tests.cli.conftest import ok
from tests.support.broker import SteeredNode
from tests.support.for_each import for_each
from tests.support.server import call_plog

DESCRIBE = ["group", "describe", "etl"]
OF_GROUPS = (["group", "list"], DESCRIBE, [*DESCRIBE, "--members"])
OF_TRANSACTIONS = (["transaction", "list"], ["transaction", "describe", "copier"])
OF_OPEN_ONES = (["transaction", "find-hanging", "--all"],)
OF_OTHER = ["transaction", "find-hanging", "--all", "--topic", "other"]
OF_OTHERS = (["config", "describe", "topic", "t"], ["config", "list"], OF_OTHER)
ALL = OF_GROUPS + OF_TRANSACTIONS + OF_OPEN_ONES + OF_OTHERS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two topics, a group and a transactional id."""
    few = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    broker = SteeredNode(tmp_path / "data", BrokerConfig.parse(few))
    broker.services.group_log.ensure_topic()
    broker.services.transaction_log.ensure_topic()
    broker.close()
    where = ["--data-dir", str(tmp_path / "data")]
    ok("produce", "t", "--transactional-id", "copier", *where, stdin=b"one\ntwo\n")
    ok("produce", "other", *where, stdin=b"three\n")
    ok("consume", "t", "--group", "etl", "--max-messages", "1", *where)
    return tmp_path / "data"


def flip(log: Path) -> None:
    """A bit of the last batch; the loader finds it, as it has to make the time index again."""
    content = bytearray(log.read_bytes())
    content[-8] ^= 4
    log.write_bytes(content)
    log.with_suffix(".timeindex").unlink(missing_ok=True)


def lengthen(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"garbage" * 30)


def make_folder(log: Path) -> None:
    log.unlink()
    log.mkdir()


def log_of(root: Path, topic: str) -> Path:
    (log,) = (path for path in root.glob(f"{topic}-*/*.log") if path.stat().st_size)
    return log


TOUCHED = {
    "t": (*OF_OPEN_ONES, DESCRIBE),
    "__consumer_offsets": OF_GROUPS + OF_OPEN_ONES,
    "__transaction_state": (*OF_TRANSACTIONS, *OF_OPEN_ONES, OF_OTHER),
}


@for_each("topic, damage", product(TOUCHED, [flip, lengthen, make_folder]), first=4)
def test_what_touches_the_answer_is_told_and_nothing_else(
    topic: str, damage: Callable[[Path], None], root: Path, tmp_path: Path
) -> None:
    root, touched = Path(shutil.copytree(root, tmp_path / "damaged")), TOUCHED[topic]
    damage(log_of(root, topic))
    for arguments in ALL:
        done = call_plog(*arguments, "--data-dir", str(root))
        if arguments not in touched:
            assert done.returncode == 0, arguments
            assert f"{topic}-" not in done.stderr.decode(), arguments
            continue
        assert done.returncode == 1, arguments
        assert f"{topic}-" in done.stderr.decode(), arguments


def test_what_a_crash_alone_leaves_is_no_damage(root: Path) -> None:
    log = log_of(root, "__consumer_offsets")
    with log.open("ab") as file:
        file.write((1).to_bytes(8) + log.read_bytes()[8:70])  # of a write that was never acknowledged
    for path in (root / ".kafka_cleanshutdown", *log.parent.glob("*.snapshot")):
        path.unlink()
    for arguments in OF_GROUPS:
        assert call_plog(*arguments, "--data-dir", str(root)).returncode == 0


def test_a_large_log_that_no_request_names_is_not_read(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read: list[str] = []
    load = LogManager.load

    def note(*arguments: Any) -> Any:
        read.append(arguments[1].topic)
        return load(*arguments)

    named = [arguments for arguments in OF_GROUPS + OF_TRANSACTIONS if arguments is not DESCRIBE]
    answers = [ok(*arguments, "--data-dir", str(root)) for arguments in named]
    monkeypatch.setattr(lazy_logs, "AT_ONCE_BYTES", 0)
    monkeypatch.setattr(LogManager, "load", note)
    caplog.set_level(logging.INFO, "plog.coordinator")
    for arguments, answer in zip(named, answers, strict=True):
        caplog.clear()
        assert ok(*arguments, "--data-dir", str(root)) == answer
        lines = [record.getMessage() for record in caplog.records if record.name == "plog.coordinator"]
        assert len(lines) == len(set(lines)) > 0, "each partition is replayed once"
    assert set(read) == {"__consumer_offsets", "__transaction_state"}


def test_damage_to_a_large_log_is_told_though_no_request_names_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_logs, "AT_ONCE_BYTES", 0)
    flip(log_of(root, "other"))
    session = Session(directory=root)
    with session.open_client(is_read_only=True, rests_on=lambda topic: topic == "t", opens_late=True):
        pass
    with (
        pytest.raises(DamagedAnswerError),
        session.open_client(is_read_only=True, rests_on=lambda topic: topic == "other", opens_late=True),
    ):
        pass
