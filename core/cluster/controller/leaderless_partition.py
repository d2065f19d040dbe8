"""A partition without a leader, as an operator sees it: what an election waits for, and what one now would cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.cluster.controller.unclean_recovery import LogEnd
from core.common.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderlessPartition:
    """`candidates` may have records that others lost. For plog's controller they are the holders, and it waits for all
    (`needs_all`); for Kafka's, they are the ISR, and the first that is back leads. `ends`: the log ends of the replicas
    that reported one; a replica on a failed disk reports none.
    """

    partition: TopicPartition
    replicas: tuple[int, ...]
    candidates: tuple[int, ...]
    ends: Mapping[int, LogEnd]
    needs_all: bool

    @property
    def absent(self) -> list[int]:
        """Returns the candidates whose log ends are unknown."""
        return [one for one in self.candidates if one not in self.ends]

    def without(self, broker_id: int) -> LeaderlessPartition:
        """Returns the partition as it will be once that broker is given up: see `ControllerDecisions.forget`."""
        others = tuple(one for one in self.candidates if one != broker_id)
        others = others or tuple(one for one in self.replicas if one != broker_id)
        return LeaderlessPartition(self.partition, self.replicas, others, self.ends, self.needs_all)

    @property
    def next_leader(self) -> int | None:
        """Returns the replica that an unclean election would elect now, or None if none lives. With plog's controller
        it is the candidate that has most, or any replica if no candidate has reported; with Kafka's, the first.
        """
        living = [one for one in self.replicas if one in self.ends]
        if not self.needs_all:
            return next(iter(living), None)
        known = [one for one in living if one in self.candidates]
        return max(known, key=lambda one: self.ends[one].rank) if known else next(iter(living), None)

    def cost_text(self) -> str:
        """Describes what an election now would give up."""
        leader = self.next_leader
        if leader is None:
            return "none of its replicas is alive, so no broker could lead it now"
        others = [one for one in (self.absent if self.needs_all else self.candidates) if one != leader]
        further = [one for one in others if one not in self.ends or self.ends[one].rank > self.ends[leader].rank]
        if not further:
            return f"nothing is given up if broker {leader} leads"
        return (
            f"if broker {leader} leads now, records that only {_brokers(further)} may have from offset "
            f"{self.ends[leader].offset} on are given up"
        )

    def __str__(self) -> str:
        known = ", ".join(f"{one} {self.ends[one]}" for one in self.replicas if one in self.ends)
        known = known or "no replica has said where its log ends"
        return f"{self.partition} {self._waits_text()}: {known}; {self.cost_text()}"

    def _waits_text(self) -> str:
        if not self.candidates:
            return "waits for no broker, as no replica was in sync"
        if not self.absent:
            return "has all that it waited for"
        joined = "and" if self.needs_all else "or"
        return f"waits for {_brokers(self.absent, joined)}"

    @property
    def as_row(self) -> dict[str, Any]:
        """For programs: `gives_up_from` is the offset from which on records may be given up, None for nothing."""
        leader = self.next_leader
        return {
            "partition": str(self.partition),
            "waits_for": self.absent,
            "ends": {str(one): {"offset": end.offset, "epoch": end.epoch} for one, end in self.ends.items()},
            "next_leader": leader,
            "gives_up_from": self.ends[leader].offset if leader is not None and self.absent else None,
        }


def _brokers(ids: list[int], joined: str = "and") -> str:
    if len(ids) == 1:
        return f"broker {ids[0]}"
    return f"brokers {', '.join(map(str, ids[:-1]))} {joined} {ids[-1]}"
