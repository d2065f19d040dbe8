"""Shared by the screens of groups: the model, which their thread owns, tables, and the course of a lag."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rich.style import Style

from cli.inspect.screen import LookingScreen
from cli.inspect.sparkline import sparkline
from cli.inspect.table_view import Column, Row, TableView

if TYPE_CHECKING:
    from core.view.groups.known_groups import KnownGroups

_MOST_SAMPLES = 240
_TREND_WIDTH = 12


def behind(row: Row) -> Style | None:
    """Returns the style of a lag: yellow, if there is one."""
    return Style(color="yellow") if row.get("lag") else None


class GroupLooker(LookingScreen):
    """Looks at groups, and draws trends of the lags of its own looks."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._trend_of: dict[Any, deque[int | None]] = {}

    @cached_property
    def groups(self) -> KnownGroups:
        """The model; owned by the screen's thread."""
        from core.view.groups.known_groups import KnownGroups

        return self.models.enter_context(closing(KnownGroups(self.inspected)))

    def table(self, columns: tuple[Column, ...], key: Callable[[Row], Any], id: str) -> TableView:  # noqa: A002 - Textual's name
        view = TableView(columns, id=id, empty_text="reading", is_sortable=True, key=key)
        view.glyphs = self.inspect_app.glyphs
        return view

    def trend(self, key: Any) -> str:
        """Draws the last lags of that key."""
        return sparkline(list(self._trend_of.get(key, ())), self.inspect_app.glyphs, _TREND_WIDTH)

    def note_lag(self, key: Any, lag: int | None) -> str:
        """Notes a new lag, and draws it with those before."""
        self._trend_of.setdefault(key, deque(maxlen=_MOST_SAMPLES)).append(lag)
        return self.trend(key)
