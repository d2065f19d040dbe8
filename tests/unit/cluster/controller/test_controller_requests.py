"""How the decisions of a controller are divided into requests."""

from __future__ import annotations

from core.cluster.controller.controller_context import ControllerContext, LiveBroker
from core.cluster.controller.controller_requests import ControllerRequests
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import UpdateMetadataBroker
from tests.support.for_each import for_each

MOST = 1000


@for_each("count, sizes", [(1, [1]), (MOST, [MOST]), (MOST + 1, [MOST, 1]), (2 * MOST, [MOST, MOST])])
def test_a_request_has_no_more_than_a_thousand_partitions(count: int, sizes: list[int]) -> None:
    context = ControllerContext()
    context.brokers[1] = LiveBroker(5, UpdateMetadataBroker(1), {}, 5)
    requests = ControllerRequests(context, 0, 1)
    stopped = [TopicPartition(f"t{number % 3}", number) for number in range(count)]
    for partition in stopped:
        requests.stop(partition, 1, deletes=False)
    named = [
        [
            TopicPartition(topic.topic_name, one.partition_index)
            for topic in each.topic_states
            for one in topic.partition_states
        ]
        for each in (made.request for made in requests.take())
    ]
    assert [len(each) for each in named] == sizes
    assert [sorted(each) for each in named] == [sorted(stopped[at : at + MOST]) for at in range(0, count, MOST)]
