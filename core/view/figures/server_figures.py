"""What a cluster's brokers say of their topics' logs: asked for many topics at once."""

from __future__ import annotations

from collections.abc import Mapping

from core.client.admin.admin import EARLIEST, LATEST, Admin
from core.client.net.kafka_client import KafkaClient, TopicInfo
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition
from core.log.damaged_ranges import DAMAGED_OFFSETS, parse_damaged_offsets
from core.view.target.inspect_target import InspectTarget
from core.view.target.live_server import LiveServer
from core.view.target.log_figures import PartitionFigures

_PARTITIONS_AT_ONCE = 500


class ServerFigures:
    """A `FiguresSource`, with connections of its own; owned by one task."""

    problem = ""

    def __init__(self, inspected: InspectTarget) -> None:
        self._server = LiveServer(inspected)
        self._topics: dict[str, TopicInfo] = {}
        self._asked: dict[str, Mapping[int, PartitionFigures] | KafkaError] = {}

    def close(self) -> None:
        self._server.close()

    @property
    def topics(self) -> dict[str, list[int]]:
        return {name: sorted(topic.partitions) for name, topic in self._topics.items()}

    def look_again(self) -> None:
        self._asked = {}
        try:
            self._topics = self._client.refresh()
        except ConnectionFailedError:
            self._server.forget()
            raise

    @property
    def _client(self) -> KafkaClient:
        client = self._server.find_client()
        assert client is not None, "a server was named"
        return client

    def of_topic(self, topic: str, numbers: list[int]) -> Mapping[int, PartitionFigures]:  # noqa: ARG002
        """Asks for this topic and the next ones, and remembers what it will be asked for soon. Raises KafkaError if the
        topic is refused.
        """
        if topic not in self._asked:
            try:
                self._ask_from(topic)
            except ConnectionFailedError:
                self._server.forget()
                raise
        found = self._asked.pop(topic)
        if isinstance(found, KafkaError):
            raise found
        return found

    def _ask_from(self, topic: str) -> None:
        names: list[str] = []
        count = 0
        waiting = sorted(name for name in self._topics if name >= topic)
        for name in waiting:
            names.append(name)
            count += len(self._topics[name].partitions)
            if count >= _PARTITIONS_AT_ONCE:
                break
        try:
            self._asked.update(self._ask(names))
        except KafkaError:  # one topic that is refused must not hide the others
            for name in names:
                try:
                    self._asked.update(self._ask([name]))
                except KafkaError as error:
                    self._asked[name] = error

    def _ask(self, names: list[str]) -> dict[str, Mapping[int, PartitionFigures]]:
        admin = Admin(self._client)
        led = [
            TopicPartition(name, number)
            for name in names
            for number, info in self._topics[name].partitions.items()
            if info.leader >= 0
        ]
        starts = admin.list_offsets(dict.fromkeys(led, EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(led, LATEST))
        sizes = self._sizes(admin, names)
        damaged = self._damaged(admin, names)
        return {
            name: {
                number: PartitionFigures(
                    starts.get(TopicPartition(name, number)),
                    ends.get(TopicPartition(name, number)),
                    sizes.get(TopicPartition(name, number)),
                    tuple(f"{first}-{last}" for first, last in damaged.get(name, {}).get(number, ())),
                    "" if info.leader >= 0 else "it has no leader",
                )
                for number, info in sorted(self._topics[name].partitions.items())
            }
            for name in names
        }

    def _sizes(self, admin: Admin, names: list[str]) -> Mapping[TopicPartition, int]:
        """Gives none if this client may not ask, or the broker is too old for it."""
        try:
            return admin.log_sizes(names)
        except KafkaError:
            return {}

    def _damaged(self, admin: Admin, names: list[str]) -> dict[str, dict[int, list[tuple[int, int]]]]:
        """Asks for what brokers of plog's say of damage; others know no such setting."""
        try:
            found = admin.find_topic_setting(names, DAMAGED_OFFSETS)
        except KafkaError:
            return {}
        return {name: parse_damaged_offsets(text) for name, text in found.items() if text}
