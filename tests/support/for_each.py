"""One law and many cases in one test: `@for_each("golden", golden_cases())` calls the test's function for each of them.

It takes what `pytest.mark.parametrize` takes. That gives a test for each case; this gives one, which tries them all and
names each that fails, with its last lines. It is for a law that holds of hundreds of files or seeds, which nobody wants
to count. Each case has a `tmp_path` and a `monkeypatch` of its own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

_MOST_SHOWN = 20
"""Failures whose text is printed; the others are counted."""
_PART = 100
"""Cases of one test of the longer tier, so that workers can share thousands."""


def for_each(
    names: str, cases: Iterable[Any], *, ids: Callable[[Any], object] = str, first: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """`names` are arguments of the function, separated by commas; with several, a case is a tuple. Two of these above
    each other try each pair. With `first`, so many of the cases are tried in the first tier, and the others in tests of
    the longer one.
    """
    keys, values = [name.strip() for name in names.split(",")], list(cases)
    assert values, "a law of nothing"

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def try_all(*, part: list[int] | None = None, **fixtures: Any) -> None:
            numbers = range(len(values)) if part is None else part
            failed = []
            for number in numbers:
                case = values[number]
                with pytest.MonkeyPatch.context() as patch:
                    own = {"monkeypatch": patch, "tmp_path": _folder(fixtures.get("tmp_path"), number)}
                    arguments = {name: own.get(name, value) for name, value in fixtures.items()}
                    arguments |= dict(zip(keys, case if len(keys) > 1 else (case,), strict=True))
                    try:
                        if inspect.iscoroutinefunction(test):
                            asyncio.run(test(**arguments))
                        else:
                            test(**arguments)
                    except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:  # noqa: BLE001 - a test's
                        failed.append(f"{_title(case, ids)}: {_text(error)}")
            if failed:
                shown = "\n".join(failed[:_MOST_SHOWN])
                pytest.fail(f"{len(failed)} of {len(numbers)} cases fail:\n{shown}", pytrace=False)

        left = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        if first is not None:
            left.append(inspect.Parameter("part", inspect.Parameter.KEYWORD_ONLY))
        try_all.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return try_all if first is None else pytest.mark.parametrize("part", _parts(len(values), first))(try_all)

    return decorate


def _parts(count: int, first: int) -> list[Any]:
    """Numbers of cases: some from all over for the first tier, and the others."""
    chosen = sorted({number * count // first for number in range(first)})
    others = sorted(set(range(count)) - set(chosen))
    parts = [others[start : start + _PART] for start in range(0, len(others), _PART)]
    longer = [pytest.param(part, id=f"{part[0]} to {part[-1]}", marks=pytest.mark.longer) for part in parts]
    return [pytest.param(chosen, id=f"{len(chosen)} of {count}"), *longer]


def _folder(path: Path | None, number: int) -> Path | None:
    if path is None:
        return None
    folder = path / f"{number}"
    folder.mkdir()
    return folder


def _title(case: Any, ids: Callable[[Any], object]) -> str:
    return ", ".join(str(ids(part)) for part in case) if isinstance(case, tuple) else str(ids(case))


def _text(error: BaseException) -> str:
    """What it says and where it was raised; of a nested or explained failure its own text."""
    if isinstance(error, (pytest.fail.Exception, pytest.skip.Exception)):
        return str(error)
    (frame,) = traceback.extract_tb(error.__traceback__)[-1:]
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{kind}{error}\n  ({Path(frame.filename).name}:{frame.lineno}: {frame.line})"
