"""What Textual draws on if `plog inspect` runs below `plog inspect --web`: packets for the browser's terminal."""

from __future__ import annotations

import os
from functools import partial
from threading import Timer
from typing import Any, BinaryIO, TextIO

from textual import messages
from textual.drivers.web_driver import WebDriver

_ENDING_SECONDS = 5.0
"""How long the app may take to end once nobody looks at it any more."""


class InspectWebDriver(WebDriver):
    """Textual's own, but that it ends with the server, however that ended, and opens and sends nothing: a screen can
    only draw.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._write = partial(_write, self.fileno)

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():  # the server is gone, and says no more
            last_resort = Timer(_ENDING_SECONDS, os._exit, (1,))
            last_resort.daemon = True
            last_resort.start()
            self._app.post_message(messages.ExitApp())

    def open_url(self, url: str, new_tab: bool = True) -> None:
        """Opens nothing: a record may hold any address."""

    def deliver_binary(self, binary: BinaryIO | TextIO, **_: Any) -> None:
        """Sends no file: nothing that is shown asks for one."""
        binary.close()


def _write(fileno: int, data: bytes) -> int:
    """Writes to the server, or nowhere once that is gone."""
    try:
        return os.write(fileno, data)
    except BrokenPipeError:
        return len(data)
