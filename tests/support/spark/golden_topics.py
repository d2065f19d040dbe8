"""Partitions that Kafka wrote, as topics of a data directory that a broker starts on."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.support.broker import SteeredNode, add_topic
from tests.support.golden import GoldenCase


def add_golden_topics(broker: SteeredNode, cases: Iterable[GoldenCase]) -> None:
    """Empty ones, by the fixtures' names."""
    for case in cases:
        kind = case.config.get("message.timestamp.type", "CreateTime")
        add_topic(broker, case.name, retention_ms="-1", message_timestamp_type=kind)


def put_records(directory: Path, cases: Iterable[GoldenCase]) -> None:
    """Into those topics' folders, when the broker has ended; the next one finds its own checkpoints gone."""
    for case in cases:
        folder = directory / f"{case.name}-0"
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in case.directory.iterdir():
            if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
                shutil.copy(path, folder)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown"):
        (directory / name).unlink(missing_ok=True)
