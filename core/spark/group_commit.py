"""Commits to a consumer group how far a replay came: once, whatever crashes on the way, and never in a rerun.

    note where the group is -> commit the replay's end offsets -> note that it is done

A replay keeps the notes beside its plan: a folder in `_plog/groups.json`, a lane of a topic in its offset's metadata. A
run that finds the first note and not the second commits again if the group still is where it was. If it is not, the
commit was done, or somebody else moved the group since: both times it stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.common.topic_partition import TopicPartition

NOWHERE = -1
"""The offset that stands for a group that has committed nothing for a partition."""


@dataclass(frozen=True, slots=True)
class CommitNote:
    """The note for one group and one partition. `before` is the group's offset before the replay committed."""

    before: int
    is_done: bool


Notes = Mapping[TopicPartition, CommitNote]


def commit_replayed(
    ends: Mapping[TopicPartition, int],
    notes: Notes,
    save: Callable[[Notes], None],
    find_offsets: Callable[[], Mapping[TopicPartition, int]],
    commit: Callable[[Mapping[TopicPartition, int]], None],
) -> list[TopicPartition]:
    """Commits the end offsets of the partitions that are not noted as done; returns those that it committed. `save`
    adds to the notes. Raises what the three functions raise; the next run continues from there.
    """
    todo = {partition: end for partition, end in ends.items() if partition not in notes or not notes[partition].is_done}
    if not todo:
        return []
    offsets = find_offsets()
    now = {partition: offsets.get(partition, NOWHERE) for partition in todo}
    before = {partition: notes[partition].before if partition in notes else now[partition] for partition in todo}
    unnoted = {partition: CommitNote(before[partition], is_done=False) for partition in todo if partition not in notes}
    if unnoted:
        save(unnoted)
    due = {partition: end for partition, end in todo.items() if now[partition] == before[partition]}
    if due:
        commit(due)
    save({partition: CommitNote(before[partition], is_done=True) for partition in todo})
    return sorted(due)
