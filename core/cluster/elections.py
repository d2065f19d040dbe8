"""Who leads a partition next: the rules of Kafka's controller, as functions.

The replicas of a partition are asked in the order of its assignment, whose first one is the preferred leader. What
makes one eligible depends on why there is an election. An election that is not unclean takes replicas in sync alone.

(kafka.controller.PartitionLeaderElectionAlgorithms, kafka.controller.Election, of Kafka 3.9)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple


class Election(NamedTuple):
    """Who leads from now on, and who is in sync then. An unclean leader may lack what was committed before."""

    leader: int
    isr: tuple[int, ...]
    is_unclean: bool = False


def elect_offline(
    replicas: Iterable[int], isr: Collection[int], online: Collection[int], *, may_be_unclean: bool
) -> Election | None:
    """Elects for a partition that lost its leader; `online` are the replicas that could lead. Who is not online leaves
    the replicas in sync. An unclean leader is alone in sync, as nobody else has its log.
    """
    candidates = [replica for replica in replicas if replica in online]
    leader = next((replica for replica in candidates if replica in isr), None)
    if leader is not None:
        return Election(leader, tuple(replica for replica in isr if replica in online))
    if may_be_unclean and candidates:
        return Election(candidates[0], (candidates[0],), is_unclean=True)
    return None


def elect_preferred(replicas: Iterable[int], isr: Collection[int], online: Collection[int]) -> Election | None:
    """Gives leadership to the first replica of the assignment, if it can lead."""
    preferred = next(iter(replicas), None)
    if preferred is None or preferred not in isr or preferred not in online:
        return None
    return Election(preferred, tuple(isr))


def elect_for_shutdown(
    replicas: Iterable[int], isr: Collection[int], online: Collection[int], shutting_down: Collection[int]
) -> Election | None:
    """Elects before the leader stops; brokers that are about to stop leave the replicas in sync."""
    staying = [replica for replica in replicas if replica in online and replica not in shutting_down]
    leader = next((replica for replica in staying if replica in isr), None)
    return None if leader is None else Election(leader, tuple(one for one in isr if one not in shutting_down))


def elect_for_reassignment(target: Iterable[int], isr: Collection[int], online: Collection[int]) -> Election | None:
    """Elects among the replicas that a partition is to have in the end."""
    leader = next((replica for replica in target if replica in isr and replica in online), None)
    return None if leader is None else Election(leader, tuple(isr))
