"""ControlledShutdown (API 7): a broker that is about to stop asks the controller to move what it leads.

Between brokers, up to Kafka 3.9 (ZooKeeper): Kafka 4.0 removed it. The header of a request in version 0 had no client
id; that header is not known here, only the request.
"""

from __future__ import annotations

from core.protocol.message import Api, array, int16, int32, int64, message, string, struct


@message(api_key=7, valid="0-3", flexible="3+")
class ControlledShutdownRequest:
    broker_id: int = int32()
    broker_epoch: int = int64("2+", -1, ignorable=True)


@struct
class RemainingPartition:
    topic_name: str = string()
    partition_index: int = int32()


@message(api_key=7, valid="0-3", flexible="3+")
class ControlledShutdownResponse:
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)


CONTROLLED_SHUTDOWN = Api(7, "ControlledShutdown", ControlledShutdownRequest, ControlledShutdownResponse)
