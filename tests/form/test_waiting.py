"""The product waits in one way: for the next try of a `Retry` (core/client/net/retry.py).

Tests wait for conditions: a sleep stands in a loop that looks at one, or says what is to take that long; and what
bounds a wait counts the machine's seconds (`tests/support/waiting.py`), or nothing: a test that hangs is ended.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAY_SLEEP = (
    "tests/crash/chaos/nemesis.py",
    "tests/crash/cluster/cluster_nemesis.py",
    "tests/support/answers/asked_broker.py",
)
"""In the first two the time is the fault: for so long a process is stopped, or a disk full. The last waits for Kafka to
apply what it has acknowledged, and Kafka says nowhere how far it is.
"""


def blind_sleeps(path: Path) -> list[int]:
    """The lines with a sleep of some time that no `while` is around."""
    text = path.read_text()
    if "sleep(" not in text:
        return []
    tree = ast.parse(text)
    polling = {id(node) for loop in ast.walk(tree) if isinstance(loop, ast.While) for node in ast.walk(loop)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep", "sleep")
        if id(node) not in polling and ast.unparse(node.args[0]) != "0"
    ]


def test_no_test_sleeps_for_some_time() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / "tests").rglob("*.py")
        if str(path.relative_to(ROOT)) not in MAY_SLEEP and (lines := blind_sleeps(path))
    }
    assert found == {}


RETRY = "core/client/net/retry.py"
SLEEPS_ITSELF = {
    "cli/cluster/start.py": "looks at processes that nobody waits for, until a signal comes",
    "cli/commands/group.py": "shows the groups again every so many seconds",
    "core/client/cluster_admin/reassignment_watch.py": "shows once a second how far moves are",
    "core/client/net/authenticator.py": "a broker refuses to be asked to authenticate again within a second",
    "core/client/net/token_source.py": "the pauses between three requests to a token endpoint; no broker is asked",
    "core/client/read/directory_source.py": "looks again at files, which say nothing when they grow",
    "core/client/write/perf.py": "sends so many records a second",
    "core/client/write/redrive.py": "sends so many records a second",
    "core/compaction/cleaner_worker.py": "writes so many bytes a second; below the client",
    "core/files/directory_lock.py": "another process may release the lock; below the client",
    "core/pipeline/produce.py": "sends so many records a second",
}
"""Why these do not wait for a next try, or can't use a `Retry`."""


def blocking_sleeps(text: str) -> bool:
    """Says whether a module names `time.sleep`: to call it, or as a default."""
    if "sleep" not in text:
        return False
    return any(
        (isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep")
        or (isinstance(node, ast.ImportFrom) and node.module == "time" and any(a.name == "sleep" for a in node.names))
        for node in ast.walk(ast.parse(text))
    )


def test_blocking_sleeps_are_found() -> None:
    for text in ("import time\ntime.sleep(1)", "from time import monotonic, sleep", "def f(pause=time.sleep): ..."):
        assert blocking_sleeps(text), text
    assert not blocking_sleeps("async def f(): await asyncio.sleep(1)  # no time.sleep")


def test_only_a_retry_waits_for_the_next_try() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in ("core", "cli")
        for path in (ROOT / package).rglob("*.py")
        if blocking_sleeps(path.read_text())
    }
    assert found == {RETRY, *SLEEPS_ITSELF}


BOUNDS = ("timeout", "request_timeout", "seconds")
WAITS = ("wait", "join", "result", "flush", "communicate", "wait_for", "alarm", "settimeout", "timeout")
BOUND_AT = {"select": 3, "poll": 0, "acquire": 1}
"""Of other calls, which argument bounds a wait: select.select(r, w, x, 20)."""
SHORT = 2
"""In seconds; a wait for something that must not happen may be so short."""
CLOCKS = ("time.monotonic()", "monotonic()", "time.time()")
SETTINGS = ("KazooClient", "ReadOptions", "cluster.ride")
"""What these are given is a session's time, or what the test is about."""
ASKED_AGAIN = "_ASKED_S"
"""How long one question waits that is asked again and again: no bound of the wait."""


def bare_limits(text: str) -> list[str]:
    """Numbers of seconds that bound a wait, and comparisons with the clock."""
    tree = ast.parse(text)
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and is_long(node.value, set())
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id != ASKED_AGAIN
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in SETTINGS:
            named = [word.value for word in node.keywords if word.arg in BOUNDS]
            if isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
                named += node.args
            elif isinstance(node.func, ast.Attribute):
                named += node.args[BOUND_AT.get(node.func.attr, len(node.args)) :][:1]
                is_queue = node.func.attr == "get" and ast.unparse(node.args[0]) == "True" if node.args else False
                named += node.args[1:] if is_queue else []
            found += [f"{node.lineno}: {ast.unparse(node)}" for value in named if is_long(value, constants)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            by_default = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            in_order = zip(node.args.args[::-1], node.args.defaults[::-1], strict=False)
            found += [
                f"{node.lineno}: {word.arg}={ast.unparse(value)}"
                for word, value in (*by_default, *in_order)
                if word.arg in BOUNDS and value is not None and is_long(value, constants)
            ]
        elif isinstance(node, ast.Compare) and any(isinstance(op, ast.Lt | ast.LtE) for op in node.ops):
            sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
            if any(side.startswith(CLOCKS) for side in sides):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def is_long(value: ast.expr, constants: set[str]) -> bool:
    if isinstance(value, ast.Name):
        return value.id in constants
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Add):
        return is_long(value.left, constants) or is_long(value.right, constants)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float) and value.value > SHORT


def test_bare_limits_are_found() -> None:
    for bare in (
        "p.wait(60)",
        "run(x, timeout=3)",
        "asyncio.timeout(30)",
        "asyncio.wait_for(x, 5 * 60)",
        "_S = 20\nevent.wait(_S)",
        "_S: float = 20\nevent.wait(_S)",
        "assert time.monotonic() - a < 15",
        "queue.get(True, 20)",
        "select.select(a, b, c, 20)",
        "def f(x, timeout=20): ...",
        "def f(*, seconds: float = 20): ...",
    ):
        assert len(bare_limits(bare)) == 1, bare
    for good in ("p.wait()", "run(x, timeout=ANSWER_SECONDS)", "wait(0.1)", "assert time.monotonic() - a >= 0.3"):
        assert bare_limits(good) == [], good


def test_no_wait_has_a_bare_limit() -> None:
    found = {
        str(path.relative_to(ROOT)): limits
        for path in (ROOT / "tests").rglob("*.py")
        if path.name != "waiting.py" and (limits := bare_limits(path.read_text()))
    }
    assert found == {}
