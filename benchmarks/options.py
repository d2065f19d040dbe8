"""The options of a benchmark, and checks that the machine has the programs and packages that it needs."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from tests.support.oracle import KAFKA_VERSION, why_not


def option_parser(doc: str | None, **sizes: float) -> argparse.ArgumentParser:
    """Returns a parser with an option for each of the `sizes`; the size is its default."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in sizes.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(size), default=size, help=f"{size:,} unless given")
    return parser


def add_full_memory(parser: argparse.ArgumentParser, *, default: bool) -> None:
    """Adds `--full-memory`, for `peers.memory_of`."""
    text = "take the machine's memory first, which makes figures steadier; not on a machine where others work"
    parser.add_argument("--full-memory", action=argparse.BooleanOptionalAction, default=default, help=text)


def add_only(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Adds `--only NAME`, which may be repeated; all `names` are its default."""
    text = f"one of {', '.join(names)}; may be repeated"
    parser.add_argument("--only", action=_Chosen, choices=names, default=names, metavar="NAME", help=text)


class _Chosen(argparse.Action):
    """Like argparse's action `extend`, but the first value replaces the default."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, value: Any, _option: str | None = None) -> None:
        chosen = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [value] if chosen is self.default else [*chosen, value])


def ensure_kafka(version: str = KAFKA_VERSION) -> None:
    """Ends the process with an error if Apache Kafka can't run here."""
    reason = why_not(version)
    if reason is not None:
        raise SystemExit(f"error: this needs Apache Kafka {version}: {reason}")


def ensure_programs(*names: str) -> None:
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"error: this needs {', '.join(missing)} on the PATH")


def ensure_packages(*names: str, extra: str) -> None:
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise SystemExit(f"error: this needs {', '.join(missing)}, of plog's extra {extra}")
