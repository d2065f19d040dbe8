"""The panel that names and explains the field under the cursor."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from cli.inspect.bytes_view import BytesView
from cli.inspect.line_view import BAD, BOLD, DIM
from core.common.printable import printable

_LINES = 8
_MOST_VALUE = 2000
_MOST_VALUE_LINES = 2


class FieldPanel(Static):
    """Stands below the bytes or beside them, and always has the same size, so that a key costs no new layout."""

    def lay_out(self, *, is_beside: bool) -> None:
        """Takes its place."""
        self.set_class(is_beside, "side")
        self.set_class(not is_beside, "detail")
        self.styles.height = "100%" if is_beside else _LINES

    def show(self, view: BytesView) -> None:
        """Says what is known of the byte under the cursor."""
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
