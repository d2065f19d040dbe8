"""How long a large group takes to agree: seconds from the last JoinGroup sent to the last SyncGroup answered.

    .venv/bin/python -m benchmarks.groups [--members 200] [--rounds 5] [--warm-up 1]

Each round and broker: a new group of the classic protocol, all members on connections of their own, in one process that
sends all requests of a kind before it reads the answers; `group.initial.rebalance.delay.ms` is 0. plog and Kafka in
turns.
"""

from __future__ import annotations

import select
import time
from functools import partial
from typing import Any

from benchmarks.figures import spread
from benchmarks.options import ensure_kafka, option_parser
from benchmarks.peers import KafkaPeer, PlogPeer, running, scratch_folder
from benchmarks.wire import transport_to
from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import Retry
from core.common.endpoint import parse_bootstrap
from core.protocol.frame import decode_response, encode_request
from core.protocol.message_codec import codec
from core.protocol.schema.consumer_protocol import ConsumerProtocolSubscription
from core.protocol.schema.groups import (
    JOIN_GROUP,
    SYNC_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.support.waiting import ANSWER_SECONDS

JOIN_VERSION, SYNC_VERSION = 9, 5
SUBSCRIPTION = b"\0\1" + codec(ConsumerProtocolSubscription, 1).encode(ConsumerProtocolSubscription(["t"]))
ASSIGNMENT = bytes(50)


class Members:
    """A group's members, each with a connection."""

    def __init__(self, address: str, group: str, count: int) -> None:
        self._group = group
        self._transports = [transport_to(address) for _ in range(count)]
        self._ids = [""] * count

    def agree(self) -> float:
        """Seconds from the last JoinGroup to the last SyncGroup answered."""
        numbers = range(len(self._ids))
        for number in numbers:
            self._send_join(number)
        self._ids = [self._receive(number, JOIN_GROUP, JOIN_VERSION).member_id for number in numbers]
        for number in numbers:
            self._send_join(number)
        started, answers = self._join_until_all_are_in()
        leader, generation = answers[0].leader, answers[0].generation_id
        shares = [SyncGroupRequestAssignment(member_id, ASSIGNMENT) for member_id in self._ids]
        for number, member_id in enumerate(self._ids):
            request = SyncGroupRequest(self._group, generation, member_id, None, "consumer", "range")
            request.assignments = shares if member_id == leader else []
            self._transports[number].send(encode_request(SYNC_GROUP, SYNC_VERSION, 1, "benchmark", request))
        assert all(self._receive(n, SYNC_GROUP, SYNC_VERSION).assignment == ASSIGNMENT for n in numbers)
        return time.monotonic() - started

    def _join_until_all_are_in(self) -> tuple[float, list[JoinGroupResponse]]:
        """When the last JoinGroup was sent, and the answers of the generation that has all members. Those of a smaller
        generation join again at once, as their next heartbeat would tell them to.
        """
        started = time.monotonic()
        answers: dict[int, JoinGroupResponse] = {}
        too_small = 0
        while True:
            for number in self._readable():
                answer = self._receive(number, JOIN_GROUP, JOIN_VERSION)
                assert answer.error_code == 0, answer.error_code
                answers[number] = answer
                if answer.members and len(answer.members) < len(self._ids):
                    too_small = answer.generation_id
            for number in [n for n, answer in answers.items() if answer.generation_id <= too_small]:
                del answers[number]
                self._send_join(number)
                started = time.monotonic()
            if len(answers) == len(self._ids):
                return started, [answers[number] for number in range(len(self._ids))]

    def _readable(self) -> list[int]:
        sockets = {transport.fileno(): number for number, transport in enumerate(self._transports)}
        poll = select.poll()
        for fd in sockets:
            poll.register(fd, select.POLLIN)
        return [sockets[fd] for fd, _ in poll.poll()]

    def _send_join(self, number: int) -> None:
        said = [JoinGroupRequestProtocol("range", SUBSCRIPTION)]
        request = JoinGroupRequest(self._group, 30_000, 60_000, self._ids[number], None, "consumer", said)
        self._transports[number].send(encode_request(JOIN_GROUP, JOIN_VERSION, 1, "benchmark", request))

    def _receive(self, number: int, api: Any, version: int) -> Any:
        return decode_response(api, version, self._transports[number].receive())[1]

    def close(self) -> None:
        for transport in self._transports:
            transport.close()


def main() -> None:
    options = option_parser(__doc__, rounds=5, warm_up=1, members=200).parse_args()
    ensure_kafka()
    figures: dict[str, list[float]] = {}
    plog = partial(PlogPeer, settings=("group.initial.rebalance.delay.ms=0",))
    with scratch_folder() as directory, running(directory, plog, KafkaPeer) as peers:
        for number in range(-options.warm_up, options.rounds):  # those for Java's compiler are not counted
            for peer in peers:
                groups = GroupAdmin(KafkaClient(parse_bootstrap(peer.address)))
                Retry(ANSWER_SECONDS).call(partial(groups.offsets, "any"))  # makes the topic of groups
                members = Members(peer.address, f"group-{number}", options.members)
                took = members.agree()
                members.close()
                if number >= 0:
                    figures.setdefault(peer.name, []).append(took)
    for name, found in figures.items():
        print(f"| {name} | {spread(found, '.3f')} |")


if __name__ == "__main__":
    main()
