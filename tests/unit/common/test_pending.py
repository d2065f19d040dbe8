"""A value that comes later: what is made of it goes to whoever waits, and errors do too."""

from __future__ import annotations

from typing import Any

import pytest

from core.common.pending import Pending, wait_for
from core.common.task import finish


class _Now(Pending[str]):
    def value_now(self) -> str:
        return "as it is"


def refuse(_value: str) -> Any:
    raise ValueError("refused")


@pytest.mark.parametrize("way", ["map", "then"])
def test_an_error_of_what_is_made_goes_to_whoever_waits_for_it(way: str) -> None:
    """Whoever gives the value, such as a flush, has others to give it to."""
    source = Pending[str]()
    made: Pending[Any] = source.map(refuse) if way == "map" else source.then(refuse)
    errors: list[Exception] = []
    made.on_failure = errors.append
    source.complete_with("a")
    assert [str(error) for error in errors] == ["refused"]
    assert made.is_over


def test_work_that_waits_itself_is_completed_now_with_what_it_waited_for() -> None:
    last = _Now()
    made = _Now().then(lambda _value: last)
    values: list[str] = []
    made.on_value = values.append
    made.complete_now()
    assert values == ["as it is"]


def test_who_does_not_wait_any_more_leaves_nobody_waiting() -> None:
    over, other = Pending[str](), Pending[str]()
    over.cancel()
    over.follow(other)
    assert other.is_over


def test_what_is_over_can_not_be_waited_for() -> None:
    """A connection would wait for ever; a mistake of ours is met at once."""
    given: Pending[int] = Pending()
    given.complete_with(1)
    with pytest.raises(AssertionError):
        given.map(str)
    with pytest.raises(AssertionError):
        given.then(str)


def test_a_task_gets_what_came_before_it_waited() -> None:
    given, failed = Pending[int](), Pending[int]()
    given.complete_with(1)
    with pytest.raises(ValueError, match="broken"):
        failed.fail(ValueError("broken"))
    assert finish(wait_for(given)) == 1
    with pytest.raises(ValueError, match="broken"):
        finish(wait_for(failed))
