"""Changes of a cluster's metadata, which only the controller makes.

While ZooKeeper is away no controller decides anything, and nobody knows when one will: requests to it then fail at
once, with an error that says so. Brokers of plog report for how long they have been without ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from core.client.admin.cluster_status import describe_cluster
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import METADATA_SECONDS, RETRIABLE, Result, Retry
from core.cluster.description.cluster_health import cut_off_text
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, PlogError

_NO_CONTROLLER = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})
"""Errors of a broker that is not the controller any more, or does not know it."""

_LOOK_SECONDS = 3.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.2
_NO_ZOOKEEPER_HINT = (
    "is ZooKeeper running? Partitions that have a leader go on; plog cluster status says when ZooKeeper is back"
)


def at_controller(client: KafkaClient, work: Callable[[ClientConnection], Result]) -> Result:
    """Returns what `work` returns at any broker, which KRaft's forward, or else at the controller. Waits a while if
    there is no controller, or it has changed. Raises KafkaError at once if ZooKeeper is away.
    """
    try:
        return work(client.any_connection())
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
    return at_controller_itself(client, work)


def at_controller_itself(client: KafkaClient, work: Callable[[ClientConnection], Result]) -> Result:
    """As `at_controller`, for requests that no broker forwards: only the controller is asked."""
    look = partial(_ensure_zookeeper_is_there, client)
    return Retry().call(lambda: work(client.controller_connection()), _NO_CONTROLLER, look)


def wait_until_known(look: Callable[[], bool]) -> None:
    """Waits until `look` finds that the broker that answers the next request knows of a change. The controller confirms
    a change a moment before other brokers know of it. After `METADATA_SECONDS`, or an error that stays, it gives up in
    silence: the change is made by then.
    """

    def is_known() -> bool | None:
        try:
            return look() or None
        except KafkaError as error:
            return error.code not in RETRIABLE or None
        except PlogError:
            return True

    Retry(METADATA_SECONDS, first_s=_FIRST_PAUSE_SECONDS, most_s=_LONGEST_PAUSE_SECONDS).until(is_known)


def _ensure_zookeeper_is_there(client: KafkaClient, refusal: KafkaError) -> None:
    """Raises KafkaError, with the code of the refusal, if the brokers report that ZooKeeper is away."""
    try:
        found = describe_cluster(client, timeout_s=_LOOK_SECONDS)
    except PlogError:
        return  # they come and go: the next try finds out
    if found.is_cut_off:
        raise KafkaError(
            refusal.code,
            f"{cut_off_text(found.cut_off)}: until ZooKeeper is back there is no controller, and nothing can be "
            "changed",
            hint=_NO_ZOOKEEPER_HINT,
        )
