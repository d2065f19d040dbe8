"""What is not well in a cluster, from what each of its brokers says."""

from __future__ import annotations

import pytest

from core.common.endpoint import Endpoint
from core.processes import cluster_check
from core.processes.cluster_check import find_trouble
from core.protocol.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BROKERS = {1: Endpoint("localhost", 1), 2: Endpoint("localhost", 2)}


def answer(
    *, brokers: tuple[int, ...] = (1, 2), controller: int = 1, isr: tuple[int, ...] = (1, 2), **topics: int
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(number, "localhost", number) for number in brokers],
        controller_id=controller,
        topics=[
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=number, leader_id=1, replica_nodes=[1, 2], isr_nodes=[*isr]
                    )
                    for number in range(partitions)
                ],
            )
            for name, partitions in topics.items()
        ],
    )


@pytest.mark.parametrize(
    ("first", "second", "trouble"),
    [
        (answer(t=2), answer(t=2), None),
        (answer(), answer(), None),
        (answer(t=2), answer(), "broker 2 does not know all of topic t yet"),
        (answer(), answer(t=2), None),
        (answer(controller=2), answer(controller=2, t=2), "broker 1 does not know all of topic t yet"),
        (answer(t=2), answer(t=3), "broker 2 does not know all of topic t yet"),
        (answer(b=1, a=1), answer(), "broker 2 does not know all of topic a yet"),
        (answer(t=2), answer(t=2, controller=2), "the brokers name several controllers, [1, 2]"),
        (answer(t=2), answer(t=2, controller=-1), "broker 2 says: there is no controller"),
        (answer(t=2), answer(t=2, isr=(1,)), "broker 2 says: t-0 has replicas [1, 2], and [1] are in sync"),
        (
            answer(brokers=(1, 2, 3)),
            answer(),
            "broker 1 says: the brokers of the cluster are [1, 2, 3], of which [1, 2] run",
        ),
    ],
)
def test_what_is_not_well(
    first: MetadataResponse, second: MetadataResponse, trouble: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {BROKERS[1]: first, BROKERS[2]: second}
    monkeypatch.setattr(cluster_check, "_ask", lambda endpoint, _: answers[endpoint])
    assert find_trouble(BROKERS) == trouble
