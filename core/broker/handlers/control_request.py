"""How requests of the controller are answered: LeaderAndIsr, StopReplica and UpdateMetadata.

They pass one fence. The settings of topics that are news are read first: ZooKeeper tells of a topic's settings when
they change, and not when the topic is made with them. A controller has one connection, on which requests are handled
one after the other, so what it says is taken up in the order in which it was said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from core.broker.membership import Membership
from core.broker.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.common.pending import Pending
from core.protocol.schema.leader_and_isr import LeaderAndIsrRequest
from core.protocol.schema.stop_replica import StopReplicaRequest
from core.protocol.schema.update_metadata import UpdateMetadataRequest

Res = TypeVar("Res")


def answer_controller(
    services: Services,
    request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest,
    topics: Iterable[str],
    answer: Callable[[Membership], Res | Pending[Res]],
    refuse: Callable[[ErrorCode], Res],
) -> Res | Pending[Res]:
    """Gives what `answer` makes if the request passes the fence, before and after the settings of `topics` are known:
    a newer controller may have spoken meanwhile. Else what `refuse` makes of the error.
    """
    membership = services.membership
    if membership is None:
        raise MalformedMessageError("a request of a cluster's controller came to a broker that is in no cluster")
    fence = membership.find_error

    def take() -> Res | Pending[Res]:
        error = fence(request.controller_id, request.controller_epoch, request.broker_epoch)
        if error is not None:
            return refuse(error)
        return answer(membership)

    error = fence(request.controller_id, request.controller_epoch, request.broker_epoch)
    if error is not None:
        return refuse(error)
    reading = membership.read_configs(topics)
    return take() if reading is None else reading.then(lambda _nothing: take())
