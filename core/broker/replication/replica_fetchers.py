"""Follows the leaders of all partitions that this broker has a replica of and does not lead.

There is one fetcher for each broker that leads some (`core.broker.replication.leader_fetcher`); it ends when
nothing of that broker is followed any more. Source: kafka.server.ReplicaFetcherManager.
"""

from __future__ import annotations

from core.broker.replication.leader_fetcher import FollowingBroker, LeaderFetcher
from core.broker.serving.loop_tasks import LoopTasks
from core.cluster.partition import Partition, Role
from core.common.topic_partition import TopicPartition


class ReplicaFetchers:
    """Owned by the loop's task.

    I1 each partition is followed by one fetcher, that of its leader
    """

    def __init__(self, broker: FollowingBroker) -> None:
        """Follows what the broker's replicas say now, and from now on to those who subscribe."""
        self._broker = broker
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._closing = LoopTasks()
        self._is_closed = False
        broker.replicas.subscribe(self.stop, self.follow)
        for partition in broker.replicas.partitions.values():
            self.follow(partition)

    def follow(self, partition: Partition) -> None:
        """Begins, or goes on in another leader epoch or from another leader, as the partition's state says; stops if
        it follows nobody. A no-op if nothing of that changed.
        """
        name = partition.log.partition
        if self._is_closed or partition.role is not Role.FOLLOWING or not partition.is_served:
            self.stop(name)
            return
        leader = partition.state.leader
        if self._leaders.get(name, leader) != leader:
            self.stop(name)
        if leader not in self._fetchers:
            self._fetchers[leader] = LeaderFetcher(leader, self._broker)
        self._leaders[name] = leader
        self._fetchers[leader].follow(partition)

    def stop(self, name: TopicPartition) -> None:
        """Follows it no more, if it was: nothing is appended to its log, nor cut, from now on."""
        leader = self._leaders.pop(name, None)
        if leader is not None:
            fetcher = self._fetchers[leader]
            fetcher.stop(name)
            if not len(fetcher):
                del self._fetchers[leader]
                self._closing.begin(fetcher.close())

    @property
    def max_lag(self) -> int:
        """See `FetchPlan.max_lag`; of all leaders."""
        return max((fetcher.max_lag for fetcher in self._fetchers.values()), default=0)

    def on_brokers_changed(self) -> None:
        """Called when another broker listens somewhere else, or is known only now."""
        for fetcher in self._fetchers.values():
            fetcher.on_brokers_changed()

    def check_invariants(self) -> None:
        assert sum(map(len, self._fetchers.values())) == len(self._leaders), "I1"
        for fetcher in self._fetchers.values():
            assert len(fetcher), f"broker {fetcher.leader} is asked for nothing"
            fetcher.check_invariants()

    async def close(self) -> None:
        """Stops all at once, for good; returns when all connections are closed and nothing is at work any more."""
        self._is_closed = True
        for name in list(self._leaders):
            self.stop(name)
        await self._closing.wait()
