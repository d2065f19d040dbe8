"""A screen that looks again every two seconds while it is seen, in a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from cli.inspect.inspect_worker import InspectWorker, Job
from cli.inspect.screen import InspectScreen
from core.common.errors import PlogError

LOOK_SECONDS = 2.0


class LookingScreen(InspectScreen):
    """Subclasses say how to look (`steps`, `close_model`, both in the thread) and show what comes of it (`take`)."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "look", "Look again")]

    def __init__(self, name: str, *, is_covered: bool = False) -> None:
        """With `is_covered` another screen comes over it at once, and it waits until that is left."""
        super().__init__()
        self._waits = is_covered
        self._background = InspectWorker(name)
        self._is_looking = False

    # --- what a subclass says

    def steps(self) -> Iterator[Any]:
        """Looks, and gives what is found in steps; in the thread."""
        raise NotImplementedError

    def take(self, found: Any) -> None:
        """Shows it."""
        raise NotImplementedError

    def close_model(self) -> None:
        """Closes what `steps` has opened; in the thread, after everything else."""

    def say_empty(self, text: str) -> None:
        """Shows why there is nothing to be seen yet, or can't be."""

    # --- looking; Textual calls the handlers of the classes above by itself

    def on_mount(self) -> None:
        if self.inspect_app.has_animation:
            self.set_interval(LOOK_SECONDS, self._look_if_seen)

    def on_unmount(self) -> None:
        self._background.submit(Job(lambda _job: self.close_model()))
        self._background.close()

    def on_screen_suspend(self) -> None:
        self._waits = False

    def on_screen_resume(self) -> None:
        self._look_if_seen()

    def _look_if_seen(self) -> None:
        if self.is_on_top and not self._waits:
            self.action_look()

    def action_look(self) -> None:
        """Looks again, unless it does so just now."""
        if not self._is_looking:
            self._is_looking = True
            self.in_steps(self.steps, self.take, done=self._end, failed=self._fail, background=self._background)

    def _end(self) -> None:
        self._is_looking = False

    def _fail(self, error: PlogError) -> None:
        self._is_looking = False
        self.tell_problem(error)
        self.say_empty("nothing can be shown")

    def tell_problems(self, problems: list[str]) -> None:
        """Shows the first of them, and how many more there are."""
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        self.tell_problem(f"{problems[0]}{more}" if problems else None)
