"""Work that one broker has to do, while another one takes over: how long it is tried again, and when it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.client.net import leader_retry
from core.client.net.leader_retry import retry_while_leader_moves
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from tests.support.for_each import for_each

MOVED = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
LOST = ConnectionFailedError("could not connect", where="a:1")


class Cluster:
    """The client and the clock of a cluster, and work that fails until then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, brokers: int = 3) -> None:
        self.now_s = 0.0
        self.node_ids = list(range(brokers))
        self.forgotten = self.topics_forgotten = 0
        self.tries = 0
        monkeypatch.setattr(leader_retry, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def forget_connections(self) -> None:
        self.forgotten += 1

    def forget_topics(self) -> None:
        self.topics_forgotten += 1

    def ride(self, find_error: Callable[[float], Exception | None], *, takes_s: float = 0.0) -> str:
        """Each try takes so long."""

        def work() -> str:
            self.tries += 1
            self.now_s += takes_s
            error = find_error(self.now_s)
            if error is not None:
                raise error
            return "done"

        return retry_while_leader_moves(self, work)  # type: ignore[arg-type]


def test_a_dead_broker_is_waited_for_and_then_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    assert cluster.ride(lambda now_s: LOST if now_s < 25 else MOVED if now_s < 34 else None) == "done"
    assert cluster.forgotten > 200
    assert cluster.topics_forgotten == cluster.tries - 1


@for_each("error, seconds", [(LOST, 30), (MOVED, 10)])
def test_not_for_ever(monkeypatch: pytest.MonkeyPatch, error: Exception, seconds: float) -> None:
    cluster = Cluster(monkeypatch)
    with pytest.raises(type(error)) as raised:
        cluster.ride(lambda _: error)
    assert raised.value is error
    assert seconds <= cluster.now_s < seconds + 1


def test_it_is_tried_again_however_long_the_first_time_took(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    assert cluster.ride(lambda _: LOST if cluster.tries < 2 else None, takes_s=40) == "done"


@for_each("error, brokers", [(LOST, 1), (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND), 3), (ValueError(), 3)])
def test_at_once_if_trying_again_does_not_help(monkeypatch: pytest.MonkeyPatch, error: Exception, brokers: int) -> None:
    cluster = Cluster(monkeypatch, brokers=brokers)
    with pytest.raises(type(error)):
        cluster.ride(lambda _: error)
    assert (cluster.tries, cluster.now_s) == (1, 0)
