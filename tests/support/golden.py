"""The partition folders that real Apache Kafka wrote (tests/golden/kafka), and what its own tools say of them."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "kafka"
SAMPLE_DATA = GOLDEN.parents[2] / "sample-data"


@dataclass(frozen=True)
class GoldenRecord:
    """One record as a real consumer got it. `value_digest` stands for a value that is too large for the fixture."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    value_digest: tuple[int, str] | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    leader_epoch: int

    def has_value(self, value: bytes | None) -> bool:
        if self.value_digest is None or value is None:
            return value == self.value
        return (len(value), hashlib.sha256(value).hexdigest()) == self.value_digest


@dataclass(frozen=True)
class GoldenCase:
    """`directory` is the partition's folder, `truth` its .json."""

    name: str
    directory: Path
    truth: dict[str, Any]

    def records(self) -> list[GoldenRecord]:
        return [_record(fields) for fields in self.truth["read_uncommitted"]]

    def committed_records(self) -> list[GoldenRecord]:
        committed = set(self.truth["read_committed_offsets"])
        return [record for record in self.records() if record.offset in committed]

    @property
    def config(self) -> dict[str, str]:
        return dict(self.truth.get("config") or {})


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _record(fields: dict[str, Any]) -> GoldenRecord:
    digest = (fields["value_len"], fields["value_sha256"]) if "value_sha256" in fields else None
    epoch = fields.get("leader_epoch")
    return GoldenRecord(
        fields["offset"],
        fields["timestamp"],
        fields["timestamp_type"],
        _bytes(fields["key"]),
        _bytes(fields["value"]),
        digest,
        tuple((name.encode(), _bytes(value)) for name, value in fields["headers"]),
        -1 if epoch is None else epoch,
    )


@cache
def golden_cases() -> tuple[GoldenCase, ...]:
    """Every folder of which a consumer's records are known."""
    cases = []
    for path in sorted(GOLDEN.glob("*.json")):
        truth = json.loads(path.read_bytes())
        directory = GOLDEN / path.stem
        if directory.is_dir() and "read_uncommitted" in truth:
            cases.append(GoldenCase(path.stem, directory, truth))
    return tuple(cases)


def case(name: str) -> GoldenCase:
    return next(c for c in golden_cases() if c.name == name)


def directories(pattern: str = "*") -> list[Path]:
    return sorted(path for path in GOLDEN.glob(pattern) if path.is_dir())
