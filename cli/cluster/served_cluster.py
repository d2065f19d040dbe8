"""Opens the cluster for commands that need a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from cli.data_location import Place, default_data_dir

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.common.topic_partition import TopicPartition


@contextmanager
def open_cluster(command: str, place: Place) -> Iterator[KafkaClient]:
    """Opens a client. Raises UsageError for a directory without a server, and if no place is named and the default one
    has none; AccessError if the named place has none.
    """
    from core.client.net.kafka_client import KafkaClient
    from core.common.errors import AccessError, UsageError

    with ExitStack() as stack:
        try:
            source = stack.enter_context(place.session().open_source())
        except AccessError as error:
            if place.data_dir is None and error.where == str(default_data_dir()):
                raise UsageError(
                    f"plog cluster {command} needs a server", hint="--bootstrap-server HOST:PORT"
                ) from error
            raise
        if not isinstance(source, KafkaClient):
            raise UsageError(
                f"plog cluster {command} needs a cluster: no broker serves {source.directory}",
                hint="--bootstrap-server HOST:PORT",
            )
        yield source


def find_partitions(client: KafkaClient, names: Sequence[str]) -> list[TopicPartition]:
    """Returns the named partitions, each once; all of the cluster's for no names, and for `all`."""
    from cli.cluster.partition_args import find_named_partitions
    from core.common.topic_partition import TopicPartition

    known = {topic.name: sorted(topic.partitions) for topic in client.refresh().values()}
    if not names or (list(names) == ["all"] and "all" not in known):
        return sorted(TopicPartition(topic, number) for topic, numbers in known.items() for number in numbers)
    return sorted(set(find_named_partitions(names, known)))
