"""The controller of a cluster with ZooKeeper: events go in, writes and requests to brokers come out.

No sockets, no clock, no ZooKeeper: each event is a method that returns a `Decision`. One decision is driven to its end
before the next one begins. Requests to brokers leave through the `send` of the `ControllerDecisions`, after the state
that they announce is in ZooKeeper. If another controller may have been elected, this one is dropped with all its state;
a new controller starts from ZooKeeper.

Source: kafka.controller.KafkaController of Kafka 3.9, with these differences. An election is one write, not two. If all
replicas of an ISR have died, the ISR keeps all of them, not only the one that died last. A broker joins the ISR only in
the broker epoch in which it fetched, if the leader names that epoch (KIP-903).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from core.cluster.controller.controller_context import ControlledTopic, LiveBroker
from core.cluster.controller.controller_decisions import ControllerDecisions, elected
from core.cluster.controller.controller_requests import ControllerRequest
from core.cluster.controller.controller_writes import AssignmentWrite, Decision, ProducerIdWrite, slices
from core.cluster.controller.elections import (
    Election,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_unclean,
)
from core.cluster.controller.feature_control import FeatureControl
from core.cluster.controller.isr_alterations import UNKNOWN_EPOCH, IsrAlterations
from core.cluster.controller.reassignment import Reassignments
from core.cluster.controller.topic_deletion import TopicDeletions
from core.cluster.image.metadata_image import PartitionState
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from core.protocol.schema.controller_request import AlterPartitionRequest, AlterPartitionResponse
from core.protocol.schema.list_offsets import ListOffsetsResponse

_log = logging.getLogger("plog.controller")

Results = dict[TopicPartition, ErrorCode]


class ClusterController:
    """Owned by one task, which drives one decision after the other; in office from `take_office` on."""

    def __init__(self, office: ControllerDecisions) -> None:
        self._office = office
        self._context = office.context
        self.names: dict[bytes, str] = {}  # of topics, by their ids
        self.features = FeatureControl()
        self.deletions = TopicDeletions(office)
        self.reassignments = Reassignments(office)
        self._alterations = IsrAlterations(office)

    # --- events of ZooKeeper

    def take_office(
        self, brokers: Mapping[int, LiveBroker], topics: Mapping[str, ControlledTopic], deleted: Collection[str]
    ) -> Decision[None]:
        """Starts from the state in ZooKeeper. Brokers learn of each other first: a follower that does not know its
        leader's address does not follow.
        """
        for broker_id, broker in brokers.items():
            self._context.add_broker(broker_id, broker)
        for name, topic in topics.items():
            self._put_topic(name, topic)
        self._office.requests.tell_metadata()
        yield from self._office.send_all()
        yield from self.deletions.begin(deleted)
        everything = [partition for partition, _ in self._context.partitions()]
        yield from self._office.settle_holders(everything)
        yield from self._office.elect(everything)
        yield from self._office.shrink(everything)
        yield from self._office.tell_roles(everything)
        yield from self._office.send_all()
        yield from self.reassignments.resume(everything)
        self.deletions.resume(self._context.deleted)
        yield from self._office.send_all()

    def on_brokers(self, brokers: Mapping[int, LiveBroker]) -> Decision[None]:
        """Notes the brokers that are registered now. A broker with another epoch has died and come back, however
        quickly: its memory is lost. One with the same epoch may have other listeners now, and all brokers learn of it.
        """
        known = self._context.brokers
        gone = {one for one, broker in known.items() if one not in brokers or brokers[one].epoch != broker.epoch}
        come = [one for one in brokers if one not in known or one in gone]
        changed = [one for one in known if one not in gone and brokers[one] != known[one]]
        self._context.stats.broker_changes += bool(gone or come)
        for broker_id in changed:
            self._context.add_broker(broker_id, brokers[broker_id])
            self._office.requests.tell_metadata()
        for broker_id in gone:
            self._context.remove_broker(broker_id)
        if gone:
            held = self._context.held_by(gone)
            yield from self._office.elect(held)
            yield from self._office.shrink(held, gone)
            self._office.requests.tell_metadata(held)
        yield from self._office.send_all()
        if come:
            yield from self._welcome({broker_id: brokers[broker_id] for broker_id in come})

    def _welcome(self, brokers: Mapping[int, LiveBroker]) -> Decision[None]:
        """Adds new brokers: sends them the whole state, and tells the other brokers that the new ones are alive."""
        for broker_id, broker in brokers.items():
            self._context.add_broker(broker_id, broker)
        everything = [partition for partition, _ in self._context.partitions()]
        self._office.requests.tell_metadata()
        self._office.requests.tell_metadata(everything, brokers)
        yield from self._office.send_all(asks=False)
        held = self._context.held_by(brokers)
        elected_now = set((yield from self._office.elect(held)))
        for partition in held:
            if partition not in elected_now:
                self._office.requests.tell_roles(partition, brokers)
        yield from self._office.send_all()
        yield from self.reassignments.resume(held)
        self.deletions.resume(self._context.deleted)
        yield from self._office.send_all()

    def on_topics(self, topics: Mapping[str, ControlledTopic]) -> Decision[None]:
        """Adds topics that are new, have more partitions, or can be read again: brokers may not have heard what they
        lead and follow of these, and may have restarted since.
        """
        found: list[TopicPartition] = []
        for name, topic in topics.items():
            known = self._context.topics.get(name)
            named = [TopicPartition(name, number) for number in topic.partitions]
            if known is None or known.topic_id != topic.topic_id:
                self._put_topic(name, topic)
                found += named
                continue
            known.version = topic.version
            found += [one for one in named if not self._context.is_written(one)]
            for partition in (one for one in named if self._context.find(one) is None):
                self._context.put(partition, topic.partitions[partition.partition])
        told = [one for one in found if self._context.is_written(one)]
        yield from self._office.elect(found)
        yield from self._office.shrink(told)
        yield from self._office.tell_roles(told)
        yield from self._office.send_all()

    def on_topics_gone(self, names: Iterable[str]) -> None:
        """Forgets topics that somebody else has removed completely."""
        for name in names:
            self.deletions.forget(name)
            self._forget_topic(name)

    def on_deletions(self, names: Iterable[str]) -> Decision[None]:
        """Begins to delete topics. The request for an unknown topic is done already."""
        yield from self.deletions.begin(names)
        yield from self._office.send_all()

    def _put_topic(self, name: str, topic: ControlledTopic) -> None:
        self._forget_topic(name)
        self._context.put_topic(name, topic)
        self.names[topic.topic_id] = name

    def _forget_topic(self, name: str) -> None:
        topic = self._context.topics.get(name)
        if topic is not None:
            self.names.pop(topic.topic_id, None)
        self._context.drop_topic(name)

    # --- what operators ask of a controller

    def create_topics(
        self, topics: Mapping[str, ControlledTopic], configs: Mapping[str, Mapping[str, str]]
    ) -> Decision[None]:
        """Writes new topics, already checked, with their settings, and adds them."""
        writes = [
            AssignmentWrite(name, topic.topic_id, topic.partitions, topic.version, configs.get(name, {}))
            for name, topic in topics.items()
        ]
        versions = yield writes
        for topic, version in zip(topics.values(), versions, strict=True):
            topic.version = version
        yield from self.on_topics(topics)

    def create_partitions(self, name: str, added: Mapping[int, PartitionState]) -> Decision[None]:
        """Writes more partitions of a topic, already checked, and adds them."""
        topic = self._context.topics[name]
        partitions = {**topic.partitions, **added}
        (version,) = yield [AssignmentWrite(name, topic.topic_id, partitions, topic.version)]
        yield from self.on_topics({name: ControlledTopic(topic.topic_id, version, dict(added))})

    def elect_leaders(self, partitions: Iterable[TopicPartition], *, is_unclean: bool) -> Decision[Results]:
        """Elects the preferred leaders of the partitions, or with `is_unclean` any replica for partitions without a
        leader. Returns the result of each partition.
        """
        results: Results = {}
        for some in slices(dict.fromkeys(partitions)):
            results |= yield from self._elect_leaders(some, is_unclean=is_unclean)
        yield from self._office.send_all()
        return results

    def _elect_leaders(self, partitions: Iterable[TopicPartition], *, is_unclean: bool) -> Decision[Results]:
        results: Results = {}
        changes: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            state = self._context.find(partition)
            if state is None or partition.topic in self._context.deleted:
                results[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            election = self._elect_unclean(partition, state) if is_unclean else self._elect_preferred(partition, state)
            results[partition] = ErrorCode.NONE if isinstance(election, Election) else election
            if isinstance(election, Election):
                changes[partition] = self._office.elected(partition, election)
        yield from self._office.lead(changes)
        return results

    def _elect_preferred(self, partition: TopicPartition, state: PartitionState) -> Election | ErrorCode:
        if state.leader == state.replicas[0]:
            return ErrorCode.ELECTION_NOT_NEEDED
        election = elect_preferred(state.replicas, state.isr, self._context.sure(partition))
        return election or ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    def _elect_unclean(self, partition: TopicPartition, state: PartitionState) -> Election | ErrorCode:
        """Elects on an operator's request, if need be a replica whose broker would not lead it: it may be all that is
        left. Among replicas whose log ends are known, it elects the one that has most.
        """
        if self._office.is_led(partition):
            return ErrorCode.ELECTION_NOT_NEEDED
        election = elect_offline(state.replicas, state.isr, self._context.sure(partition))
        if election is None:
            election = self._office.give_up(partition)
        if election is None:
            refused = [one for one in state.replicas if one in self._context.brokers]
            election = elect_unclean(state.replicas, (), refused)
            if election is not None:
                self._context.set_online(partition, election.leader)
        if election is None:
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        self._context.stats.unclean_elections += election.is_unclean
        return election

    def forget(self, broker_id: int) -> Decision[None]:
        """Waits no longer for a broker that an operator calls gone for good, nor for records that only it may have.
        Raises KafkaError(BROKER_ID_NOT_REGISTERED) if no replica is on it, INVALID_REQUEST if it lives.
        """
        if broker_id in self._context.brokers:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"broker {broker_id} is registered: it lives, and is not gone for good"
            )
        held = self._context.held_by([broker_id])
        if not held:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no partition has a replica on broker {broker_id}")
        yield from self._office.forget(held, broker_id)
        yield from self._office.elect(held)
        yield from self._office.send_all()

    def balance_leaders(self, most_imbalance_percent: int) -> Decision[int]:
        """Moves leadership back to preferred leaders, for each broker of whose preferred partitions more than the given
        percentage are led by others (auto.leader.rebalance.enable). Returns the number of partitions that moved.
        """
        preferred: dict[int, list[TopicPartition]] = {}
        for partition, state in self._context.partitions():
            if state.replicas and not (state.adding_replicas or state.removing_replicas):
                preferred.setdefault(state.replicas[0], []).append(partition)
        moved = 0
        for broker_id, partitions in preferred.items():
            led_by_others = [one for one in partitions if self._context.state(one).leader != broker_id]
            if broker_id in self._context.brokers and len(led_by_others) * 100 > most_imbalance_percent * len(
                partitions
            ):
                results = yield from self.elect_leaders(led_by_others, is_unclean=False)
                moved += sum(error is ErrorCode.NONE for error in results.values())
        return moved

    # --- what brokers ask

    def alter_partitions(self, request: AlterPartitionRequest) -> Decision[AlterPartitionResponse]:
        """Changes ISRs when leaders ask for it (AlterPartition, KIP-497)."""
        if not self._is_present(request.broker_id, request.broker_epoch):
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        answer, changed = yield from self._alterations.alter(request, self.names)
        yield from self.reassignments.resume(changed)
        yield from self._office.send_all()
        return answer

    def shut_down(self, broker_id: int, broker_epoch: int) -> Decision[list[TopicPartition] | ErrorCode]:
        """Moves leadership away from a broker that is about to stop, and stops its followers. Returns the partitions
        that it still leads because no other broker can, or an error code if the request is refused.
        """
        broker = self._context.brokers.get(broker_id)
        if broker is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        if broker_epoch not in (UNKNOWN_EPOCH, broker.epoch):
            return ErrorCode.STALE_BROKER_EPOCH
        self._context.shutting_down.add(broker_id)
        held = [one for one in self._context.held_by([broker_id]) if len(self._context.state(one).replicas) > 1]
        followed = [one for one in held if self._context.state(one).leader != broker_id]
        for some in slices(one for one in held if self._context.state(one).leader == broker_id):
            yield from self._hand_over(some)
        for some in slices(followed):
            for partition in some:
                self._office.requests.stop(partition, broker_id, deletes=False)
            yield from self._office.shrink(some, {broker_id})
        yield from self._office.send_all()
        return [one for one in held if (state := self._context.find(one)) and state.leader == broker_id]

    def _hand_over(self, partitions: Iterable[TopicPartition]) -> Decision[None]:
        moved: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            state = self._context.state(partition)
            sure = self._context.sure(partition, includes_leaving=True)
            election = elect_for_shutdown(state.replicas, state.isr, sure, self._context.shutting_down)
            if election is not None:
                moved[partition] = elected(state, election)
        yield from self._office.lead(moved)

    def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int, first: int, version: int, count: int
    ) -> Decision[range | ErrorCode]:
        """Returns a broker's next block of producer ids, from `first` on; `version` is that of the block before."""
        if not self._is_present(broker_id, broker_epoch):
            return ErrorCode.STALE_BROKER_EPOCH
        ids = range(first, first + count)
        yield [ProducerIdWrite(broker_id, ids, version)]
        return ids

    # --- answers of brokers

    def on_roles_taken(
        self, broker_id: int, broker_epoch: int, request: LeaderAndIsrRequest, answer: LeaderAndIsrResponse
    ) -> Decision[None]:
        """Notes replicas whose disk has failed, replicas that work again, and leaders that live."""
        if not self._is_present(broker_id, broker_epoch) or answer.error_code:
            return
        for told in request.topic_states:
            for state in told.partition_states:
                if state.leader == broker_id and self._is_now(told, state):
                    self._context.forget_witnesses(TopicPartition(told.topic_name, state.partition_index))
        failed: list[TopicPartition] = []
        working: list[TopicPartition] = []
        for topic in answer.topics:
            name = self.names.get(topic.topic_id)
            for one in topic.partition_errors if name is not None else ():
                partition = TopicPartition(name or "", one.partition_index)
                if self._context.find(partition) is None or partition.topic in self._context.deleted:
                    continue
                if one.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    if self._context.is_online(partition, broker_id):
                        failed.append(partition)
                        self._context.set_offline(partition, broker_id)
                elif one.error_code == ErrorCode.NONE and not self._context.is_online(partition, broker_id):
                    self._context.set_online(partition, broker_id)
                    working.append(partition)
        self._office.requests.tell_metadata(working)
        yield from self._office.elect(working + failed)
        yield from self._office.shrink(failed, {broker_id})
        self._office.requests.tell_metadata(failed)
        yield from self._office.send_all()

    def on_log_ends(self, request: ControllerRequest, answer: ListOffsetsResponse) -> Decision[None]:
        """Notes where the logs of holders end, and elects leaders for partitions whose ends are now all known."""
        yield from self._office.elect(self._office.recovery.note(request, answer))
        yield from self._office.send_all()

    def look_at_recovery(self, now_ms: int) -> Decision[None]:
        """Asks again the holders that could not yet report their log ends, and stops waiting for absent ones after
        `recovery_wait_ms`: -1 means never; None means five minutes if `min.insync.replicas` is 1, and never if it is
        more, because an acknowledged record was then promised to be on several disks.
        """
        yield from self._office.elect(self._office.recovery.leave_witnesses(now_ms))
        for some in slices(self._office.recovery.overdue(now_ms, self._office.policy.recovery_wait_ms())):
            found = {one: election for one in some if (election := self._office.give_up(one)) is not None}
            self._context.stats.unclean_elections += len(found)
            yield from self._office.lead({one: self._office.elected(one, election) for one, election in found.items()})
        self._office.recovery.say_missing()
        self._office.recovery.ask_again()
        yield from self._office.send_all()

    def settle_holders(self) -> Decision[None]:
        """Called when settings have changed: see `ControllerDecisions.settle_holders`."""
        yield from self._office.settle_holders([partition for partition, _ in self._context.partitions()])
        yield from self._office.send_all()

    def on_replicas_stopped(
        self, broker_id: int, broker_epoch: int, request: StopReplicaRequest, answer: StopReplicaResponse
    ) -> Decision[None]:
        """Goes on with the deletion of topics, if the request was part of one: removes topics without replicas; of very
        many some, and `remove_deleted` the others.
        """
        if not self._is_present(broker_id, broker_epoch):
            return
        deleted = {
            TopicPartition(topic.topic_name, state.partition_index)
            for topic in request.topic_states
            for state in topic.partition_states
            if state.delete_partition
        }
        errors = {
            partition: ErrorCode.of(one.error_code)
            for one in answer.partition_errors
            if (partition := TopicPartition(one.topic_name, one.partition_index)) in deleted
        }
        self.deletions.on_stopped(broker_id, errors)
        yield from self.remove_deleted()

    def remove_deleted(self) -> Decision[bool]:
        """Removes topics without replicas, as many as one turn allows; returns whether there were any."""
        removed = yield from self.deletions.remove_some()
        for name in removed:
            self._forget_topic(name)
        return bool(removed)

    def ask_for_disks(self, broker_id: int) -> Decision[None]:
        """Asks a broker that reported a failed disk which of its replicas are offline."""
        for partition in self._context.held_by([broker_id]):
            self._office.requests.tell_roles(partition, [broker_id])
        yield from self._office.send_all()

    def _is_now(self, topic: LeaderAndIsrTopicState, told: LeaderAndIsrPartitionState) -> bool:
        state = self._context.find(TopicPartition(topic.topic_name, told.partition_index))
        is_same = topic.topic_name not in self._context.deleted and self.names.get(topic.topic_id) == topic.topic_name
        return is_same and state is not None and state.leader_epoch == told.leader_epoch

    def _is_present(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._context.brokers.get(broker_id)
        return broker is not None and broker.epoch == broker_epoch

    def check_invariants(self) -> None:
        self._context.check_invariants()
        assert {name: topic_id for topic_id, name in self.names.items()} == {
            name: topic.topic_id for name, topic in self._context.topics.items()
        }
