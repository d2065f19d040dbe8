"""One law and many cases in one test: `@for_each("golden", golden_cases())` calls the test's function for each of them.

It takes what `pytest.mark.parametrize` takes. That gives a test for each case; this gives one, which tries them all and
names each that fails, with its last lines. It is for a law that holds of hundreds of files or seeds, which nobody wants
to count. Each case has a `tmp_path` and a `monkeypatch` of its own.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

_MOST_SHOWN = 20
"""Failures whose text is printed; the others are counted."""


def for_each(
    names: str, cases: Iterable[Any], *, ids: Callable[[Any], object] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`names` are arguments of the function, separated by commas; with several, a case is a tuple. Two of these above
    each other try each pair.
    """
    keys, values = [name.strip() for name in names.split(",")], list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def try_all(**fixtures: Any) -> None:
            failed = []
            for number, case in enumerate(values):
                with pytest.MonkeyPatch.context() as patch:
                    own = {"monkeypatch": patch, "tmp_path": _folder(fixtures.get("tmp_path"), number)}
                    arguments = {name: own.get(name, value) for name, value in fixtures.items()}
                    try:
                        test(**arguments, **dict(zip(keys, case if len(keys) > 1 else (case,), strict=True)))
                    except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:  # noqa: BLE001 - is told
                        failed.append(f"{_title(case, ids)}: {_text(error)}")
            if failed:
                shown = "\n".join(failed[:_MOST_SHOWN])
                pytest.fail(f"{len(failed)} of {len(values)} cases fail:\n{shown}", pytrace=False)

        left = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        try_all.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return try_all

    assert values, "a law of nothing"
    return decorate


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
