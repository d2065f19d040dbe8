"""Finalizes levels of features, as the controller of a cluster (UpdateFeatures, KIP-584).

A request is checked in its turn, against the brokers registered then. It is answered when this broker has got the
change from ZooKeeper, as all others do at that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from core.broker.controller.controller_elector import ControllerElector
from core.cluster.image.broker_metadata import BrokerMetadata
from core.cluster.image.feature_levels import GROUPS_OF_CONSUMERS, FeatureUpdate, UpgradeType
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.pending import wait_for
from core.common.task import Task
from core.protocol.schema.groups import LIST_GROUPS, ListGroupsRequest

_LIST_GROUPS_VERSION = 5
"""The first version with types of groups (KIP-848)."""

_MOST_NAMED = 5


class ControllerFeatures:
    """Owned by the broker's loop; made for one request, which the controller's broker answers."""

    def __init__(
        self,
        control: ControllerElector,
        controller: BrokerMetadata,
        find_own_groups: Callable[[], list[str] | ErrorCode],
        *,
        node_id: int,
    ) -> None:
        """`find_own_groups` returns the groups of the consumer protocol that this broker coordinates, or why it does
        not know them. Raises KafkaError(NOT_CONTROLLER) if the broker is not the controller.
        """
        self._control = control
        self._controller = controller
        self._find_own_groups = find_own_groups
        self._node_id = node_id
        self._term = control.require_term()

    def update(self, updates: Sequence[FeatureUpdate], *, validate_only: bool, timeout_ms: int) -> Task[None]:
        """Returns when all levels are finalized. Raises KafkaError if none is; REQUEST_TIMED_OUT means that they are,
        but this broker has not got the change in time.
        """

        def is_known() -> bool:
            known = self._controller.image.features
            return all(known.get(update.name, 0) == update.level for update in updates)

        error = None
        if any(_may_end_groups(update) for update in updates):
            error = yield from wait_for(self._control.when_done(self._ensure_no_groups()))
        if error is None:
            written = self._term.do(lambda: self._term.update_features(updates, validate_only=validate_only))
            error = yield from wait_for(written)
        if error is not None:
            raise error
        if not validate_only and not (yield from wait_for(self._control.when_known(is_known, timeout_ms))):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    # --- groups that a downgrade would end

    async def _ensure_no_groups(self) -> None:
        """Raises KafkaError(INVALID_UPDATE_VERSION) if there are groups of the consumer protocol, or a broker does not
        list its groups.
        """
        brokers = sorted(self._term.context.brokers)
        found = await asyncio.gather(*(self._groups_of(broker_id) for broker_id in brokers))
        groups = sorted(group_id for of_one in found for group_id in of_one)
        if groups:
            more = f" and {len(groups) - _MOST_NAMED} more" if len(groups) > _MOST_NAMED else ""
            raise _refusal(
                f"there are groups of the consumer protocol: {', '.join(groups[:_MOST_NAMED])}{more}. Stop their "
                "members and delete them; or, with an unsafe downgrade, their members are refused, and the offsets stay"
            )

    async def _groups_of(self, broker_id: int) -> list[str]:
        if broker_id == self._node_id:
            found = self._find_own_groups()
            if isinstance(found, ErrorCode):
                raise _unknown(broker_id, found)
            return found
        try:
            request = ListGroupsRequest(types_filter=["consumer"])
            answer = await self._control.pool.ask(broker_id, LIST_GROUPS, _LIST_GROUPS_VERSION, request)
        except ConnectionFailedError as error:
            raise _unknown(broker_id, error) from error
        if answer.error_code:
            raise _unknown(broker_id, ErrorCode.of(answer.error_code))
        return [group.group_id for group in answer.groups]


def _may_end_groups(update: FeatureUpdate) -> bool:
    name, level = GROUPS_OF_CONSUMERS
    return update.name == name and update.level < level and update.way is UpgradeType.SAFE_DOWNGRADE


def _unknown(broker_id: int, why: object) -> KafkaError:
    reason = why.name if isinstance(why, ErrorCode) else str(why)
    return _refusal(f"broker {broker_id} does not say which groups it coordinates ({reason}); try again")


def _refusal(problem: str) -> KafkaError:
    name, _ = GROUPS_OF_CONSUMERS
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{name} can't be lowered safely: {problem}")
