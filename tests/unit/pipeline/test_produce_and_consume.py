"""The pipeline without a command line, as a notebook uses it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from core.client.admin.admin import Admin
from core.client.write.producer import Producer
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, MalformedMessageError, PlogError, UsageError
from core.pipeline.consume import Stdout, consume
from core.pipeline.consume_request import ConsumeRequest
from core.pipeline.frontend import Frontend
from core.pipeline.produce import PartitionReport, produce
from core.pipeline.produce_request import ProduceRequest
from core.pipeline.session import Session
from core.protocol.schema.configs import DescribedConfig


def test_a_stream_goes_in_and_comes_out_and_what_is_said_goes_to_the_caller(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    session = Session(directory=tmp_path / "data", frontend=Frontend(say=said.append))
    request = ProduceRequest(topic="t", inputs=[io.BytesIO(b"k=one\nk=two\n")], key_separator="=")
    written = produce(request, session)
    assert [(report.records, report.first_offset) for report in written.values()] == [(2, 0)]
    assert said[-1] == "2 records written to t"

    out = io.BytesIO()
    assert consume(ConsumeRequest(topics=["t"], format="%k:%s\n"), session, lambda: Stdout(out))
    assert out.getvalue() == b"k:one\nk:two\n"
    assert capfd.readouterr() == ("", "")


def test_a_broker_that_has_not_heard_of_a_new_topic_yet_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cluster the topic is made at the controller, and its settings are asked of any broker."""
    find_configs = Admin.find_configs
    refusals = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE]

    def find_late(admin: Admin, *arguments: Any, **options: Any) -> list[DescribedConfig]:
        if refusals:
            raise KafkaError(refusals.pop())
        return find_configs(admin, *arguments, **options)

    monkeypatch.setattr(Admin, "find_configs", find_late)
    said: list[str] = []
    session = Session(directory=tmp_path / "data", frontend=Frontend(say=said.append))
    produce(ProduceRequest(topic="t", inputs=[io.BytesIO(b"a\n")]), session)
    assert refusals == []
    assert said[0].endswith("1 partition, kept 7d")


def test_a_report_has_the_first_and_the_last_offset() -> None:
    report = PartitionReport()
    for base_offset, count in ((0, 3), (10, 2), (3, 1), (-1, 5)):  # -1: nobody knows, as without acks
        report.add(base_offset, count)
    assert (report.records, report.first_offset, report.last_offset) == (11, 0, 11)


def test_less_than_one_record_a_second_is_a_rate() -> None:
    ProduceRequest(topic="t", rate=0.5).ensure_consistent()


@pytest.mark.parametrize(
    "error", [ConnectionFailedError("it is gone", where="broker 1"), MalformedMessageError("the answer: it is gone")]
)
def test_a_connection_that_is_lost_leaves_a_word_of_what_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: PlogError
) -> None:
    """As does a broker whose answer can't be understood."""

    def lose(_: Producer) -> None:
        raise error

    monkeypatch.setattr(Producer, "flush", lose)
    said: list[str] = []
    session = Session(directory=tmp_path / "data", frontend=Frontend(say=said.append))
    with pytest.raises(type(error), match="it is gone"):
        produce(ProduceRequest(topic="t", inputs=[io.BytesIO(b"a\nb\n")]), session)
    assert said[-1] == "0 records written to t; some of lines 1-2 may be written, too, and none that follow"


def test_a_silent_session_raises_what_is_wrong(tmp_path: Path) -> None:
    session = Session(directory=tmp_path / "data")
    produce(ProduceRequest(topic="t", inputs=[io.BytesIO(b"a\n")]), session)
    with pytest.raises(UsageError, match="parquet"):
        consume(ConsumeRequest(topics=["t"], format="parquet"), session, lambda: Stdout(io.BytesIO()))
