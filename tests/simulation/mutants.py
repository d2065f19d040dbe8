"""Known mistakes of replication, each of which the simulation must find. A mutant is the real code, or a node's wiring,
with one step done wrongly; `core/cluster/README.md` has the rules that they break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest

from core.cluster.controller.cluster_controller import ClusterController
from core.cluster.controller.controller_context import ControllerContext, LiveBroker
from core.cluster.controller.controller_decisions import ControllerDecisions, next_epoch
from core.cluster.controller.controller_writes import Decision
from core.cluster.controller.elections import Election
from core.cluster.controller.isr_alterations import IsrAlterations
from core.cluster.controller.reassignment import Reassignments, is_moving, target_of
from core.cluster.controller.unclean_recovery import LogEnd, UncleanRecovery
from core.cluster.image.metadata_image import PartitionState
from core.cluster.partition.leadership import InSyncReplicas, IsrProposal, Leadership, RemoteReplica
from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from tests.simulation.plog_controllers import PlogControllers
from tests.simulation.simulated_controller import SimulatedController
from tests.simulation.simulated_node import SimulatedNode
from tests.simulation.world import Scenario


class Mutant(NamedTuple):
    name: str
    apply: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario = Scenario()
    """In which it is found sooner than in any history."""
    first_seed: int = 0
    """No history of it with a lower one finds it."""


def _node(**switches: bool) -> Callable[[pytest.MonkeyPatch], None]:
    return partial(_set, SimulatedNode, switches)


def _controller(**switches: bool) -> Callable[[pytest.MonkeyPatch], None]:
    return partial(_set, SimulatedController, switches)


def _set(of: type, switches: Mapping[str, bool], patch: pytest.MonkeyPatch) -> None:
    for name, value in switches.items():
        patch.setattr(of, name, value)


def _count_committed_alone(patch: pytest.MonkeyPatch) -> None:
    def find(self: Leadership, log_end_offset: int, now_ms: int) -> None:
        self._counting = [r for r in self.remotes.values() if r.node_id in self.in_sync.committed]

    patch.setattr(Leadership, "_find_who_counts", find)
    patch.setattr(Leadership, "check_invariants", lambda self: None)


def _shrink_at_once(patch: pytest.MonkeyPatch) -> None:
    shrink = InSyncReplicas.shrink

    def at_once(self: InSyncReplicas, replicas: Iterable[int], epochs: Mapping[int, int]) -> IsrProposal | None:
        proposal = shrink(self, replicas, epochs)
        if proposal is not None:
            self.maximal = frozenset(proposal.isr)
        return proposal

    def find(self: Leadership, log_end_offset: int, now_ms: int) -> None:
        self._counting = [r for r in self.remotes.values() if r.node_id in self.in_sync.maximal]

    patch.setattr(InSyncReplicas, "shrink", at_once)
    patch.setattr(Leadership, "_find_who_counts", find)
    patch.setattr(Leadership, "check_invariants", lambda self: None)
    patch.setattr(InSyncReplicas, "check_invariants", lambda self: None)


def _join_below_the_epochs_start(patch: pytest.MonkeyPatch) -> None:
    def expand(self: Leadership, remote: RemoteReplica, high_watermark: int) -> IsrProposal | None:
        if remote.end_offset < high_watermark or not self._may_join(remote):
            return None
        return self.in_sync.expand(remote.node_id, self._broker_epochs())

    patch.setattr(Leadership, "_expand", expand)


def _acknowledge_by_the_leader_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "must_wait_for", lambda self, offset, required_acks=-1: 0)


def _compare_ids_alone(patch: pytest.MonkeyPatch) -> None:
    on_brokers = ClusterController.on_brokers

    def compare(self: ClusterController, brokers: Mapping[int, LiveBroker]) -> Decision[None]:
        known = self._context.brokers
        same = {one: known.get(one, broker) for one, broker in brokers.items()}
        return on_brokers(self, same)

    patch.setattr(ClusterController, "on_brokers", compare)


def _keep_unconfirmed_lives(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ControllerContext, "is_sure", lambda self, _partition, replica: replica in self.brokers)


def _hold_what_is_in_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ControllerContext, "_has_enough", lambda self, _partition, _state: True)


def _compare_ends_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogEnd, "rank", property(lambda end: (0, 0, end.offset)))


def _look_at_lives_in_the_beginning_alone(patch: pytest.MonkeyPatch) -> None:
    """What plog did once: a controller that is in office takes any replica in sync whose broker is there."""
    choose, take_office = ControllerDecisions._choose, ClusterController.take_office
    beginning: set[ControllerDecisions] = set()

    def begin(self: ClusterController, *arguments: Any) -> Decision[None]:
        beginning.add(self._office)
        yield from take_office(self, *arguments)
        beginning.discard(self._office)

    def any_in_sync(
        self: ControllerDecisions, partition: TopicPartition, state: PartitionState, online: list[int]
    ) -> Election | None:
        if self in beginning:
            return choose(self, partition, state, online)
        isr = tuple(one for one in state.isr if one in online)
        return Election(isr[0], isr) if isr else None

    patch.setattr(ClusterController, "take_office", begin)
    patch.setattr(ControllerDecisions, "_choose", any_in_sync)


def _wait_for_nobody(patch: pytest.MonkeyPatch) -> None:
    furthest = UncleanRecovery.furthest
    patch.setattr(
        UncleanRecovery, "furthest", lambda self, partition, of_all=True: furthest(self, partition, of_all=False)
    )
    patch.setattr(UncleanRecovery, "missing", lambda self, partition: [] if self.ends(partition) else [0])


def _alter_in_any_epoch(patch: pytest.MonkeyPatch) -> None:
    def why_not(self: IsrAlterations, broker_id: int, partition: TopicPartition, proposed: object) -> ErrorCode:
        state = self._context.state(partition)
        return ErrorCode.NONE if state.leader == broker_id else ErrorCode.INVALID_REQUEST

    patch.setattr(IsrAlterations, "_why_not_altered", why_not)


def _end_moves_early(patch: pytest.MonkeyPatch) -> None:
    """A replica leads that is not in sync, as the target is taken for it."""

    def end(self: Reassignments, partitions: Iterable[TopicPartition]) -> Decision[None]:
        context = self._office.context
        moving = [one for one in partitions if is_moving(context.state(one))]
        states = {}
        for one in moving:
            target = target_of(context.state(one))
            online = [replica for replica in target if context.is_online(one, replica)]
            if online:
                states[one] = next_epoch(context.state(one), leader=online[0], isr=tuple(online))
        yield from self._office.lead(states)
        yield from self._end(moving)

    patch.setattr(Reassignments, "resume", end)


_BY_PLOG = Scenario(has_plog_controllers=True)
_BROKERS_DIE = Scenario(
    faults=("kill", "change_controller"), fault_rate=0.02, has_power_cuts=True, has_plog_controllers=True
)
_POWER_CUTS = Scenario(
    faults=("kill", "change_controller", "stop", "cut_power"),
    fault_rate=0.002,
    has_power_cuts=True,
    has_plog_controllers=True,
)
_LEADERS_STALL_AND_POWER_GOES = replace(_POWER_CUTS, faults=("expire", "pause", "cut_power"))
_LEADERS_CHANGE = Scenario(faults=("move_leader",), fault_rate=0.012, slow=0.15)
_NETWORK_CHANGES = Scenario(faults=("change_network", "move_leader"), fault_rate=0.02, slow=0.08, has_power_cuts=False)
_NEWCOMERS_DIE = Scenario(faults=("kill", "kill_who_joins"), fault_rate=0.02, slow=0.6, has_power_cuts=True)

MUTANTS = [
    Mutant("truncates to the high watermark", _node(truncates_to_high_watermark=True, looks_for_divergence=False)),
    Mutant("looks for no divergence", _node(looks_for_divergence=False)),
    Mutant("names the epoch of its last record", _node(names_last_records_epoch=True), _NETWORK_CHANGES),
    Mutant("counts the committed in-sync replicas alone", _count_committed_alone),
    Mutant("a shrink counts before it is answered", _shrink_at_once),
    Mutant("joins below the start of the leader's epoch", _join_below_the_epochs_start),
    Mutant("the controller compares no partition epoch", _controller(checks_partition_epoch=False)),
    Mutant("takes a fetch of another leader epoch", _node(fences_fetches=False), _LEADERS_CHANGE),
    Mutant("takes an answer of another leader epoch", _node(takes_late_answers=True), _NETWORK_CHANGES),
    Mutant("lets in a later life than the one that fetched", _controller(checks_broker_epochs=False), _NEWCOMERS_DIE),
    Mutant("acknowledges what the leader alone has", _acknowledge_by_the_leader_alone),
    Mutant(
        "an earlier controller writes", partial(_set, PlogControllers, {"checks_controller_epoch": False}), _BY_PLOG
    ),
    Mutant("a broker that comes back at once was never gone", _compare_ids_alone, _BROKERS_DIE),
    Mutant("a new controller keeps lives that nobody has confirmed", _keep_unconfirmed_lives, _BROKERS_DIE),
    Mutant(
        "a state confirms lives that its controller does not know",
        partial(_set, PlogControllers, {"keeps_lives": False}),
        _BROKERS_DIE,
        first_seed=355,
    ),
    Mutant("what was answered is not on the disk", _node(flushes_before_it_answers=False), _POWER_CUTS),
    Mutant("who is in sync alone holds what is committed", _hold_what_is_in_sync, _POWER_CUTS),
    Mutant("the longest log wins, whatever its epoch", _compare_ends_alone, _LEADERS_STALL_AND_POWER_GOES),
    Mutant("lives are looked at when it takes office alone", _look_at_lives_in_the_beginning_alone, _POWER_CUTS),
    Mutant("nobody waits for the last holder", _wait_for_nobody, _POWER_CUTS),
    Mutant("plog compares no epochs of proposals", _alter_in_any_epoch, _BY_PLOG),
    Mutant("replicas lead before they are in sync", _end_moves_early, _BY_PLOG),
]
