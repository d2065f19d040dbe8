"""The application behind `plog inspect`: one stack of screens over the target. It reads, and never writes."""

from __future__ import annotations

from pathlib import Path

from cli.inspect.records_screen import RecordsScreen
from cli.inspect.screen import InspectHost, InspectScreen
from cli.inspect.topics_screen import TopicsScreen
from core.common.topic_partition import TopicPartition


class InspectApp(InspectHost):
    """Opens every screen. Those that are not shown at once are imported when they are."""

    def on_mount(self) -> None:
        if not self.glyphs.is_unicode:
            self.add_class("-ascii")
        self.push_screen(TopicsScreen(is_covered=self.opened.file is not None or self.opened.place is not None))
        if self.opened.file is not None:
            self.open_bytes(self.opened.file)
        elif self.opened.place is not None:
            self._top.go(self.opened.place)

    @property
    def _top(self) -> InspectScreen:
        found = next(one for one in reversed(self.screen_stack) if isinstance(one, InspectScreen))
        assert isinstance(found, InspectScreen)
        return found

    def open_records(self, partition: TopicPartition, offset: int | None = None) -> None:
        top = self._top
        if type(top) is RecordsScreen and top.partition == partition:  # not all partitions of a topic
            top.go_to(offset)
        else:
            self.push_screen(RecordsScreen(partition, offset))

    def open_topic_records(self, topic: str, time_ms: int | None = None) -> None:
        from cli.inspect.topic_records_screen import TopicRecordsScreen

        self.push_screen(TopicRecordsScreen(topic, time_ms))

    def open_bytes(self, path: Path, position: int = 0) -> None:
        from cli.inspect.bytes_screen import BytesScreen

        self.push_screen(BytesScreen(path, position))

    def open_map(self, partition: TopicPartition) -> None:
        from cli.inspect.map_screen import MapScreen

        self.push_screen(MapScreen(partition))

    def open_files(self, partition: TopicPartition) -> None:
        from cli.inspect.files_screen import FilesScreen

        self.push_screen(FilesScreen(partition))

    def open_verify(self, path: Path) -> None:
        from cli.inspect.verify_screen import VerifyScreen

        self.push_screen(VerifyScreen(path))

    def open_groups(self) -> None:
        from cli.inspect.groups_screen import GroupsScreen

        self.push_screen(GroupsScreen())

    def open_transactions(self) -> None:
        from cli.inspect.transactions_screen import TransactionsScreen

        self.push_screen(TransactionsScreen())
