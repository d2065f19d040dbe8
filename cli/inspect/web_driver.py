"""Textual's driver for `plog inspect` below `plog inspect --web`: packets for the browser's terminal."""

from __future__ import annotations

import os
from threading import Timer

from textual import messages
from textual.drivers.web_driver import WebDriver

_ENDING_SECONDS = 5.0
"""How long the app may take to end once its browser is gone."""


class InspectWebDriver(WebDriver):
    """Textual's own, but the app ends with the server, however that ended."""

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():  # the server is gone, and silent
            last_resort = Timer(_ENDING_SECONDS, os._exit, (1,))
            last_resort.daemon = True
            last_resort.start()
            self._app.post_message(messages.ExitApp())
