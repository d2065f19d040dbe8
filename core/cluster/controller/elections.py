"""The rules by which Kafka's controller elects the next leader of a partition, as functions.

The replicas of a partition are candidates in the order of its assignment, which begins with the preferred leader. Which
are eligible depends on the reason for the election. A clean election takes only replicas of which the controller is
sure that they have all committed records (`ControllerContext.sure`).

(kafka.controller.PartitionLeaderElectionAlgorithms, kafka.controller.Election, of Kafka 3.9)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple


class ElectionPolicy(NamedTuple):
    """The settings of a topic, and of this broker, for elections.

    may_be_unclean    unclean.leader.election.enable of a topic
    min_isr           min.insync.replicas of a topic
    recovery_wait_ms  plog.leader.recovery.wait.ms, see `ClusterController.look_at_recovery`
    """

    may_be_unclean: Callable[[str], bool] = lambda _topic: False
    min_isr: Callable[[str], int] = lambda _topic: 1
    recovery_wait_ms: Callable[[], int | None] = lambda: None


DEFAULT_POLICY = ElectionPolicy()


class Election(NamedTuple):
    """The next leader and its ISR. An unclean leader may lack records that were committed before."""

    leader: int
    isr: tuple[int, ...]
    is_unclean: bool = False


def elect_offline(replicas: Iterable[int], isr: Collection[int], sure: Collection[int]) -> Election | None:
    """Elects a new leader, brokers in the ISR first. Replicas that are not sure leave the ISR."""
    candidates = [replica for replica in replicas if replica in sure]
    staying = tuple(replica for replica in isr if replica in candidates)
    leader = next((replica for replica in candidates if replica in staying or not staying), None)
    return None if leader is None else Election(leader, staying or (leader,))


def elect_unclean(replicas: Iterable[int], isr: Collection[int], online: Collection[int]) -> Election | None:
    """Elects the first online replica, from the ISR if possible. The ISR is this replica alone, as no other has its
    log.
    """
    candidates = [replica for replica in replicas if replica in online]
    leader = next((replica for replica in candidates if replica in isr), next(iter(candidates), None))
    return None if leader is None else Election(leader, (leader,), is_unclean=True)


def elect_preferred(replicas: Iterable[int], isr: Collection[int], sure: Collection[int]) -> Election | None:
    """Returns the election of the first replica of the assignment, or None if it can't lead."""
    preferred = next(iter(replicas), None)
    if preferred is None or preferred not in isr or preferred not in sure:
        return None
    return Election(preferred, tuple(isr))


def elect_for_shutdown(
    replicas: Iterable[int], isr: Collection[int], sure: Collection[int], shutting_down: Collection[int]
) -> Election | None:
    """Elects before the leader stops; brokers that are shutting down leave the ISR."""
    staying = [replica for replica in replicas if replica in sure and replica not in shutting_down]
    leader = next((replica for replica in staying if replica in isr), None)
    return None if leader is None else Election(leader, tuple(one for one in isr if one not in shutting_down))


def elect_for_reassignment(target: Iterable[int], isr: Collection[int], sure: Collection[int]) -> Election | None:
    """Elects among the target replicas of a reassignment."""
    leader = next((replica for replica in target if replica in isr and replica in sure), None)
    return None if leader is None else Election(leader, tuple(isr))
