"""A file byte by byte: hex, and a panel that names and explains the field under the cursor.

`BytesView` draws lines of hex and text, with bars where a field begins and brackets round the one under the cursor. It
holds a window of the bytes, those on the screen and a page before and after them; the screen brings another when the
cursor comes near its ends (`NeedsBytes`).
"""

from __future__ import annotations

import re
import shlex
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Region
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from cli.inspect.line_view import BAD, BOLD, DIM, LineView
from cli.inspect.screen import NO_JOB, REPORT_SECONDS, InspectScreen, Job
from core.common.errors import PlogError, UsageError
from core.common.printable import printable
from core.files.file_names import locate_partition

if TYPE_CHECKING:
    from core.view.bytes.field_bytes import FieldBytes, FieldSource, Step, Unit
    from core.view.bytes.field_groups import Field


_DIGITS = 8
_BYTES = ((77, 16), (45, 8), (0, 4))
"""The least width of the view for so many bytes a line."""

_HEADER = (Style(color="cyan"), Style(color="blue", bold=True))
_RECORD = (Style(color="green"), Style(color="yellow"))
_DAMAGE = Style(color="red", bold=True)
_PLAIN = Style.null()
_CURSOR = Style(reverse=True)
_FIELD = Style(bold=True, underline=True)
_UNREADABLE, _HIDDEN, _UNKNOWN = "??", "**", ".."


class BytesWindow(NamedTuple):
    """Bytes from `start` on, and their known fields; some bytes may be `unreadable` or `hidden`."""

    start: int = 0
    data: bytes = b""
    fields: Sequence[Field] = ()
    unreadable: Sequence[tuple[int, int]] = ()
    hidden: Sequence[tuple[int, int]] = ()

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class BytesView(LineView):
    """Shows `size_bytes` bytes, with the cursor at `position`.

    I2 0 <= position < max(size_bytes, 1), and the cursor's line is the one that holds it
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "Left", show=False),
        Binding("right,l", "step(1)", "Right", show=False),
    ]

    class NeedsBytes(Message):
        """The window ends within a page of the screen, or on it."""

    def __init__(self) -> None:
        super().__init__(id="bytes", empty_text="reading")
        self.shows_cursor = False  # of a line: the cursor is a byte
        self.size_bytes = 0
        self.position = 0
        self.window = BytesWindow()
        self._owners: array[int] = array("i")
        """The number in `window.fields` of each byte's field; -1 if it is not known."""

    # --- contents

    @property
    def bytes_a_line(self) -> int:
        return next(count for width, count in _BYTES if self.size.width >= width)

    @property
    def count(self) -> int:
        return -(-self.size_bytes // self.bytes_a_line)

    def show(self, window: BytesWindow) -> None:
        """Shows other bytes; the cursor stays where it is."""
        self.window = window
        owners = array("i", [-1]) * len(window.data)
        for number, field in enumerate(window.fields):
            start, end = max(field.start - window.start, 0), min(field.end - window.start, len(owners))
            owners[start:end] = array("i", [number]) * (end - start)
        self._owners = owners
        self.refresh()

    def show_size(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.go_to(self.position)
        self.refresh()

    @property
    def field(self) -> Field | None:
        """The field under the cursor, or None if it is not known yet."""
        number = self._owner(self.position)
        return None if number < 0 else self.window.fields[number]

    @property
    def byte(self) -> int | None:
        """The byte under the cursor, or None if it is not known."""
        window = self.window
        if not window.start <= self.position < window.end or self._is_covered(self.position):
            return None
        return window.data[self.position - window.start]

    def _owner(self, position: int) -> int:
        at = position - self.window.start
        return self._owners[at] if 0 <= at < len(self._owners) else -1

    def _is_covered(self, position: int) -> bool:
        ranges = (*self.window.unreadable, *self.window.hidden)
        return any(start <= position < end for start, end in ranges)

    # --- drawing

    def line(self, number: int, width: int, *, is_cursor: bool) -> Sequence[Segment]:  # noqa: ARG002 - LineView's
        size = self.bytes_a_line
        start = number * size
        end = min(start + size, self.size_bytes)
        pairs, characters = self._texts(start, end)
        here, before = self._owner(self.position), self._owner(start - 1)
        left = [Segment(f" {start:0{_DIGITS}x} ", DIM)]
        right: list[Segment] = []
        for first, after, owner in self._runs(start, end):
            separator = self._separator(before, owner, here)
            if first == start and separator == "]":  # which ends the line before
                separator = self.glyphs.column
            style = self._style(owner, is_here=owner == here >= 0)
            left.append(Segment(separator, DIM))
            left += self._drawn(pairs[first - start : after - start], " ", first, style)
            right += self._drawn(characters[first - start : after - start], "", first, style)
            before = owner
        following = self._owner(end) if end < self.size_bytes else -2
        close = "]" if before == here >= 0 and following != here else " "
        left.append(Segment(close + "   " * (size - end + start) + " ", DIM))
        return [*left, *right]

    def _runs(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yields (start, end, owner) of bytes of one field."""
        while start < end:
            owner = self._owner(start)
            after = start + 1
            while after < end and self._owner(after) == owner:
                after += 1
            yield start, after, owner
            start = after

    def _drawn(self, texts: Sequence[str], between: str, start: int, style: Style) -> Iterator[Segment]:
        at = self.position - start
        if not 0 <= at < len(texts):
            yield Segment(between.join(texts), style)
            return
        if at:
            yield Segment(between.join(texts[:at]) + between, style)
        yield Segment(texts[at], style + _CURSOR)
        if at + 1 < len(texts):
            yield Segment(between + between.join(texts[at + 1 :]), style)

    def _separator(self, before: int, owner: int, here: int) -> str:
        if before == owner:
            return " "
        if owner == here and here >= 0:
            return "["
        return "]" if before == here and here >= 0 else self.glyphs.column

    def _texts(self, start: int, end: int) -> tuple[list[str], list[str]]:
        window = self.window
        pairs, characters = [], []
        for position in range(start, end):
            at = position - window.start
            if not 0 <= at < len(window.data):
                pairs.append(_UNKNOWN)
                characters.append(" ")
                continue
            byte = window.data[at]
            pairs.append(f"{byte:02x}")
            characters.append(chr(byte) if 0x20 <= byte < 0x7F else ".")
        for ranges, sign in ((window.unreadable, _UNREADABLE), (window.hidden, _HIDDEN)):
            for first, after in ranges:
                for at in range(max(first - start, 0), min(after, end) - start):
                    pairs[at], characters[at] = sign, sign[0]
        return pairs, characters

    def _style(self, owner: int, *, is_here: bool) -> Style:
        if owner < 0:
            return _PLAIN
        field = self.window.fields[owner]
        style = _DAMAGE if field.is_damage else (_RECORD if field.depth else _HEADER)[field.number % 2]
        return style + _FIELD if is_here else style

    # --- moving

    def go_to(self, position: int) -> None:
        """Puts the cursor on that byte, or the nearest one, and shows it."""
        before, top = self.position, self.top
        self.position = max(min(position, self.size_bytes - 1), 0)
        self.cursor = self.position // self.bytes_a_line
        self._show_cursor()
        if self.top != top or not self.size_bytes:
            self.refresh()
        else:
            self._draw_again(before)
            self._draw_again(self.position)
        self._changed()

    def _draw_again(self, position: int) -> None:
        """Redraws the lines of a byte's field, after the cursor came there or left."""
        owner, size = self._owner(position), self.bytes_a_line
        start, end = position, position + 1
        if owner >= 0:
            start, end = self.window.fields[owner].start, self.window.fields[owner].end
        first, last = max(start // size, self.top), min(end // size, self.top + self.page_size - 1)
        if first <= last:
            self.refresh(Region(0, first - self.top, self.size.width, last - first + 1))

    def jump_to(self, position: int) -> None:
        """As `go_to`, and shows the bytes after it as well, unless it is on the screen."""
        line, page = position // self.bytes_a_line, self.page_size
        if not self.top <= line < self.top + page - page // 4:
            self.top = max(min(line - page // 4, self.count - page), 0)
            self.refresh()
        self.go_to(position)

    def _changed(self) -> None:
        self.post_message(self.Moved(self))
        if self.needs_bytes:
            self.post_message(self.NeedsBytes())

    @property
    def needs_bytes(self) -> bool:
        """Whether the window reaches less than half a page beyond the screen."""
        size, page = self.bytes_a_line, self.page_size
        start = max((self.top - page // 2) * size, 0)
        end = min((self.top + page + page // 2) * size, self.size_bytes)
        return start < self.window.start or end > self.window.end

    @property
    def wanted(self) -> tuple[int, int]:
        """The bytes that the window should hold: the page on the screen, and one before and after it."""
        size, page = self.bytes_a_line, self.page_size
        return max((self.top - page) * size, 0), min((self.top + 2 * page) * size, self.size_bytes)

    def move_to(self, number: int) -> None:
        """Puts the cursor on another line, and leaves it in its column."""
        number = max(min(number, self.count - 1), 0)
        self.go_to(self.position + (number - self.cursor) * self.bytes_a_line)

    def action_move(self, lines: int) -> None:
        self.move_to(self.cursor + lines)

    def action_step(self, count: int) -> None:
        self.go_to(self.position + count)

    def action_first(self) -> None:
        self.go_to(0)

    def action_last(self) -> None:
        self.go_to(self.size_bytes - 1)

    def on_resize(self) -> None:
        self.go_to(self.position)
        self.refresh()

    def line_clicked(self, number: int, x: int) -> None:
        """Does the same with the byte that is drawn there."""
        column = self._column_at(x)
        position = self.size_bytes if column is None else number * self.bytes_a_line + column
        if position == self.position:
            self.action_choose()
        elif position < self.size_bytes:
            self.go_to(position)

    def _column_at(self, x: int) -> int | None:
        """Returns which of a line's bytes is drawn there, in hex or as a character, or None."""
        left, size = _DIGITS + 2, self.bytes_a_line
        right = left + 3 * size + 2
        if right <= x < right + size:
            return x - right
        column = (x - left) // 3
        return column if 0 <= column < size else None

    def check_invariants(self) -> None:
        assert 0 <= self.position < max(self.size_bytes, 1)
        assert self.cursor == self.position // self.bytes_a_line


_LINES = 8
_MOST_VALUE = 2000
_MOST_VALUE_LINES = 2


class FieldPanel(Static):
    """A panel below the bytes or beside them, of a fixed size, so that a key costs no new layout."""

    def lay_out(self, *, is_beside: bool) -> None:
        self.set_class(is_beside, "side")
        self.set_class(not is_beside, "detail")
        self.styles.height = "100%" if is_beside else _LINES

    def show(self, view: BytesView) -> None:
        """Describes the byte under the cursor."""
        self.update(self._text_of(view), layout=False)

    def _text_of(self, view: BytesView) -> Text:
        text = Text()
        field = view.field
        if not view.size_bytes:
            return text
        if field is None:
            return text.append(f"byte {view.position} (0x{view.position:x}){_byte_text(view.byte)}", DIM)
        text.append(printable(" > ".join([*field.path, field.name]), keeps=""), BAD if field.is_damage else BOLD)
        most = _MOST_VALUE if self.has_class("side") else _MOST_VALUE_LINES * self.size.width
        value = printable(field.value[:most], keeps="") + ("..." if len(field.value) > most else "")
        text.append(f"\n{value}" if field.is_damage else f"\nvalue: {value}")
        if field.meaning:
            text.append(f"  ({printable(field.meaning, keeps='')})")
        size = field.end - field.start
        where = f"byte {field.start}" if size == 1 else f"bytes {field.start} to {field.end - 1}, {size} of them"
        text.append(f"\n{where}; cursor at {view.position} (0x{view.position:x}){_byte_text(view.byte)}", DIM)
        text.append(f"\n{field.explanation}")
        if field.page:
            text.append(f"\nsee {field.page}", DIM)
        return text


def _byte_text(byte: int | None) -> str:
    return "" if byte is None else f" on 0x{byte:02x}, {byte}"


_LOOK_SECONDS = 2.0
_WIDE = 120
_POSITION = re.compile(r"\s*(0[xX][0-9a-fA-F]+|\d+)\s*")
_OFFSET = re.compile(r"\s*@(\d+)\s*")

_NOWHERE = {"field": "the last field", "item": "nothing follows", "batch": "no batch follows"}


class BytesScreen(InspectScreen):
    """Shows a file, from a position or an offset on; or its uncompressed records, if these are given."""

    HELP = """
A bar begins each field. Brackets stand round the field under the cursor; beside the bytes stand its name, the structure
that holds it, its value, the value's meaning, and its purpose. Bytes that the disk does not give are shown as ??, and
those that may be secret as **. Damage is one field, with what plog verify says of it.

Records that are compressed are one field, too; Enter shows them uncompressed. Enter on an entry of an index goes to
what it points to.

A search takes a text, or hex with spaces or without. Quotes make it a text, and 0x makes it hex. It searches the bytes
as they are in the file, compressed ones too.
"""
    KEYS = (
        ("arrows", "a byte, a line"),
        ("Tab, Shift+Tab", "the next field, the one before"),
        ("n, p", "the next record, entry or line, the one before"),
        ("], [", "the next batch, the one before"),
        ("Enter", "what is compressed here, or what the entry points to"),
        (":", "a position (4096 or 0x1000), an offset (@107), or another place"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "move_by('field', 1)", "Field"),
        Binding("shift+tab", "move_by('field', -1)", "Field before", show=False),
        Binding("n", "move_by('item', 1)", "Next"),
        Binding("p", "move_by('item', -1)", "Previous"),
        Binding("right_square_bracket", "move_by('batch', 1)", "Batch"),
        Binding("left_square_bracket", "move_by('batch', -1)", "Batch before", show=False),
        Binding("slash", "search", "Find"),
        Binding("r", "records", "Records"),
    ]
    go_label = "Go to a position (4096, 0x1000), an offset (@107), or TOPIC[:P][@...]"

    def __init__(
        self, path: Path, position: int = 0, *, offset: int | None = None, source: FieldSource | None = None
    ) -> None:
        """`source` are the file's uncompressed records; it belongs to the screen from then on."""
        super().__init__("bytes")
        self.models.callback(self._close)
        self.path = path
        self.partition = locate_partition(path.parent)[0]
        self._first = max(position, 0)
        self._offset = offset
        self._source = source
        self._file: FieldBytes | None = None
        self._place = self._first
        """The cursor's position, or its target after the moves under way."""
        self._loading = NO_JOB
        self._is_reporting = False
        self._wanted = (0, 0)
        self._note = ""
        self._searching: Job | None = None
        self._searched = ""

    # --- the frame

    def body(self) -> Iterable[Widget]:
        self.view = BytesView()
        self._panel = FieldPanel(id="field")
        self._both = Container(self.view, self._panel, id="bytes-and-field")
        yield self._both

    def on_mount(self) -> None:
        self._lay_out(self.size.width)
        self.set_interval(_LOOK_SECONDS, self._look_again)
        self.in_background(self._open, self._take_source, failed=self.fail)

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out(event.size.width)

    def _lay_out(self, width: int) -> None:
        is_wide = width >= _WIDE
        self._both.styles.layout = "horizontal" if is_wide else "vertical"
        self._both.styles.height = "1fr"
        self.view.styles.width = "1fr"
        self._panel.lay_out(is_beside=is_wide)

    def title_text(self) -> str:
        if self._source is None:
            return str(self.path)
        if self._file is None:
            return f"{self._source.title}, {self.view.size_bytes} bytes  {self.path}"
        kind = None if self._file.kind is None else self._file.kind.value
        return (
            f"{self.path.name}  {kind or 'a file of no known kind'}, {self.view.size_bytes} bytes  {self.path.parent}"
        )

    def command_line(self) -> str | None:
        if self._file is not None and not self._file.is_dumped:
            return None
        return f"plog dump-segment {shlex.quote(str(self.path))} --hex"

    # --- opening

    def _open(self) -> tuple[FieldSource, int | None]:
        """Opens the file, and returns it with the cursor's position, or None if the offset is not there."""
        from core.view.bytes.field_bytes import FieldBytes

        if self._source is None:
            self._file = self._source = FieldBytes(self.path)
        position = self._first if self._offset is None else self._source.position_of(self._offset)
        return self._source, position

    def _take_source(self, found: tuple[FieldSource, int | None]) -> None:
        source, position = found
        self.view.empty_text = "the file is empty"
        if position is None:
            self.tell(f"offset {self._offset} is not in this file")
        self._note = source.note
        self.tell_problem(source.note or None)
        self.view.size_bytes = source.size_bytes
        self.view.jump_to(position or 0)
        self.view.refresh()
        self.show_title()

    def _look_again(self) -> None:
        file = self._file
        if file is None or not self.is_on_top or not self._loading.is_over:
            return

        def look() -> tuple[int, str]:
            file.look_again()
            return file.size_bytes, file.note

        self.in_background(look, self._see)

    def _see(self, seen: tuple[int, str]) -> None:
        size_bytes, note = seen
        if note != self._note:
            self._note = note
            self.tell_problem(note or None)
        if size_bytes != self.view.size_bytes:
            self.view.show(self.view.window._replace(data=self.view.window.data[:size_bytes], fields=()))
            self.view.show_size(size_bytes)
            self._load()
        self.show_title()

    # --- bytes

    def on_bytes_view_needs_bytes(self) -> None:
        self._load()

    def _load(self) -> None:
        """Reads the bytes that the view wants, after a read that is under way."""
        source = self._source
        if not self._loading.is_over or source is None or not self.view.size_bytes:
            return
        start, end = self._wanted = self.view.wanted
        self._loading = self.in_steps(
            lambda: _windows(source, start, end), self._take_window, done=self._end_load, failed=self.fail
        )

    def _take_window(self, found: BytesWindow | int) -> None:
        if isinstance(found, int):
            self._is_reporting = True
            self.tell(f"looking for what lies here: {100 * found // max(self.view.size_bytes, 1)}% read")
            return
        if self._is_reporting and found.fields:
            self._is_reporting = False
            self.tell("")
        self.view.show(found)
        self._panel.show(self.view)

    def _end_load(self) -> None:
        if self.view.needs_bytes and self.view.wanted != self._wanted:  # the cursor went on meanwhile
            self._load()

    # --- the field

    def on_line_view_moved(self) -> None:
        self._place = self.view.position
        self._panel.show(self.view)

    # --- moving

    def action_move_by(self, unit: Unit, step: int) -> None:
        """Goes to the next field, item or batch, or back to the start of this one or of the one before; it starts from
        the target of the moves before.
        """
        source = self._source
        if source is None or not self.view.size_bytes:
            return

        def find() -> int | None:
            at = min(self._place, source.size_bytes - 1)
            found = source.following(unit, at) if step > 0 else source.preceding(unit, at)
            if found is not None:
                self._place = found
            return found

        def go(found: int | None) -> None:
            if found is None:
                self.tell(_NOWHERE[unit])
            else:
                self.view.jump_to(found)

        self.in_background(find, go)

    def go(self, text: str) -> None:
        if found := _POSITION.fullmatch(text):
            position = int(found[1], 0 if found[1][:2].lower() == "0x" else 10)
            if position >= self.view.size_bytes:
                self.tell_problem(f"position {position} is beyond the end: there are {self.view.size_bytes} bytes")
            else:
                self.tell_problem(None)
                self.view.jump_to(position)
        elif found := _OFFSET.fullmatch(text):
            self._go_to_offset(int(found[1]))
        else:
            super().go(text)

    def _go_to_offset(self, offset: int) -> None:
        source = self._source
        if source is not None:
            steps = lambda: _seldom(source.find_offset(offset))  # noqa: E731
            self._seek(steps, f"offset {offset}", lambda found: f"offset {offset} at {found[0]} (0x{found[0]:x})")

    # --- searching

    def action_search(self) -> None:
        self.ask('Find text, "text" or hex: 6b 31, 0x6b31', self._search, self._searched)

    def _search(self, text: str) -> None:
        from core.view.bytes.field_bytes import parse_needles

        try:
            needles = parse_needles(text)
        except UsageError as error:
            self.tell_problem(error)
            return
        source, start = self._source, self.view.position + 1
        self._searched = text
        if source is not None:
            self._seek(lambda: _seldom(source.find(needles, start)), repr(text), _found_text)

    def _seek(self, steps: Callable[[], Iterator[Step]], what: str, said: Callable[[tuple[int, int]], str]) -> None:
        """Goes to the place that the steps find, and shows their progress until then."""
        self._stop_search()
        self.tell_problem(None)
        result: list[tuple[int, int]] = []

        def take(step: Step) -> None:
            if step.found is None:
                self.tell(f"looking for {what}: at {100 * step.position // max(self.view.size_bytes, 1)}%; Esc stops")
                return
            result.append(step.found)
            self.view.jump_to(step.found[0])
            self.tell(said(step.found))

        def end() -> None:
            self._searching = None
            if not result:
                self.tell(f"{what} is not in these bytes")

        self._searching = self.in_steps(steps, take, done=end, failed=self._fail_search)

    def _fail_search(self, error: PlogError) -> None:
        self._searching = None
        self.tell("")
        self.tell_problem(error)

    def _stop_search(self) -> bool:
        if self._searching is None:
            return False
        self._searching.stop()
        self._searching = None
        return True

    def action_back(self) -> None:
        if self._stop_search():
            self.tell("stopped")
        else:
            super().action_back()

    # --- other screens

    def chosen(self) -> None:
        file, position = self._file, self.view.position
        if file is None:
            self.tell("nothing more is inside")
            return

        def look() -> BytesScreen | None:
            inside = file.uncompressed(position)
            if inside is not None:
                return BytesScreen(self.path, source=inside)
            lead = file.lead_at(position)
            return None if lead is None else BytesScreen(lead.path, lead.position or 0, offset=lead.offset)

        def show(screen: BytesScreen | None) -> None:
            if screen is None:
                self.tell("nothing is compressed here, and nothing pointed to")
            else:
                self.app.push_screen(screen)

        self.in_background(look, show)

    def action_records(self) -> None:
        """Shows the record under the cursor among the others of its partition."""
        source, position, partition = self._source, self.view.position, self.partition
        if source is None or partition is None or not self.view.size_bytes:
            self.tell_problem("the file is of no partition")
            return
        self.in_background(
            lambda: source.group_at(position).offset, lambda offset: self.inspect_app.open_records(partition, offset)
        )


def _found_text(found: tuple[int, int]) -> str:
    return f"found at {found[0]} (0x{found[0]:x}), {found[1] - found[0]} bytes"


def _windows(source: FieldSource, start: int, end: int) -> Iterator[BytesWindow | int]:
    """Reads bytes and their fields. If the fields are slow to find, yields the bytes first, and then the progress."""
    read = source.read(start, end - start)
    window = BytesWindow(start, read.data, (), read.unreadable, read.hidden)
    began, has_shown = time.monotonic(), False
    for step in source.approach(start):
        if time.monotonic() - began < REPORT_SECONDS:
            continue
        if not has_shown:
            yield window
        has_shown, began = True, time.monotonic()
        yield step.position
    yield window._replace(fields=tuple(source.fields_in(start, start + len(read.data))))


def _seldom(steps: Iterator[Step]) -> Iterator[Step]:
    """Yields the step that found something, and of the others a few in a second."""
    before = time.monotonic()
    for step in steps:
        if step.found is not None or time.monotonic() - before >= REPORT_SECONDS:
            before = time.monotonic()
            yield step
