"""What a broker does as a member of a cluster: it obeys the controller, and follows and leads among others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from core.broker.assigned_replicas import AssignedReplicas
from core.broker.log_services import LogServices
from core.cluster.member_controller import MemberController
from core.cluster.zookeeper_metadata import ControlFence
from core.common.error_code import ErrorCode
from core.common.pending import Pending

ReadConfigs = Callable[[Iterable[str]], "Pending[None] | None"]
"""Takes up the settings of new topics of those names; gives what is to be waited for, None if that is nothing."""


class Membership:
    """Owned by the broker's task."""

    def __init__(self, services: LogServices, controller: MemberController, read_configs: ReadConfigs) -> None:
        self.controller = controller
        self.assigned = AssignedReplicas(services)
        self.read_configs = read_configs
        self._fence = ControlFence()

    def find_error(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> ErrorCode | None:
        """Finds why a control request is refused; None if it is the present controller's, which is noted then."""
        error = self._fence.find_error(controller_epoch, broker_epoch)
        if error is None:
            self.controller.note_controller(controller_id, controller_epoch)
        return error

    def on_registered(self, broker_epoch: int) -> None:
        """Another life of the broker begins: requests that were meant for an earlier one are refused from now on."""
        self._fence.broker_epoch = self.controller.broker_epoch = broker_epoch
