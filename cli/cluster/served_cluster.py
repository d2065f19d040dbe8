"""Opens the cluster for commands that need a server, and finds the partitions that the user names: TOPIC-N as in a data
directory, TOPIC:N,N, or a whole TOPIC.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from cli.data_location import Place, default_data_dir
from core.common.command_option import argument
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, KafkaError, UsageError
from core.common.printable import did_you_mean
from core.common.topic_partition import TopicPartition
from core.files.file_names import parse_partition_directory_name

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient

PARTITIONS = argument(
    "Partitions TOPIC-N or TOPIC:N,N, or all of a TOPIC. Default: all of the cluster.",
    default=None,
    metavar="[PARTITION]...",
    completes="topic",
)

_SHOWN = 3
"""The number of partitions in a hint."""


@contextmanager
def open_cluster(command: str, place: Place) -> Iterator[KafkaClient]:
    """Opens a client. Raises UsageError for a directory without a server, and if no place is named and the default one
    has none; AccessError if the named place has none.
    """
    from core.client.net.kafka_client import KafkaClient

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
    known = {topic.name: sorted(topic.partitions) for topic in client.refresh().values()}
    if not names or (list(names) == ["all"] and "all" not in known):
        return sorted(TopicPartition(topic, number) for topic, numbers in known.items() for number in numbers)
    return sorted(set(find_named_partitions(names, known)))


def find_named_partitions(texts: Iterable[str], known: Mapping[str, Collection[int]]) -> list[TopicPartition]:
    """Returns the partitions that the texts name, among the `known` numbers by topic. Raises
    KafkaError(UNKNOWN_TOPIC_OR_PARTITION) for an unknown name. An ambiguous text is TOPIC-N.
    """
    return [partition for text in texts for partition in _find(text, known)]


def _find(text: str, known: Mapping[str, Collection[int]]) -> list[TopicPartition]:
    name, colon, numbers = text.partition(":")
    of_folder = parse_partition_directory_name(text)
    if (
        of_folder is not None
        and not colon
        and (text not in known or of_folder.partition in known.get(of_folder.topic, ()))
    ):
        wanted = [of_folder]
    elif colon and all(number.strip().isdecimal() for number in numbers.split(",")):
        wanted = [TopicPartition(name, int(number)) for number in numbers.split(",")]
    else:
        if colon and name in known:
            numbers = ",".join(map(str, sorted(known[name])[:_SHOWN]))
            raise _unknown(f"{text!r} names no partitions: expected numbers, with commas", f"{name}:{numbers}")
        wanted = [TopicPartition(text, number) for number in sorted(known.get(text, ()))]
    topic = wanted[0].topic if wanted else text
    if topic not in known:
        raise _unknown(f"no topic {topic!r}", did_you_mean(topic, known) or "plog topic list")
    there = known[topic]
    for _, number in wanted:
        if number not in there:
            hint = f"it has partitions 0 to {max(there)}" if len(there) > 1 else "it has partition 0 only"
            raise _unknown(f"topic {topic!r} has no partition {number}", hint)
    return wanted


def _unknown(text: str, hint: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text, hint=hint)
