"""The `plog` command: runs the command that was asked for, and turns what went wrong into a message and an exit code.

0 good, 1 damage or refused, 2 used wrongly, 3 could not read, write or connect, 4 our bug, 128 and a signal's number.

Empty paths, and numbers that nothing below can hold, are refused here for all options and arguments: Python takes an
empty path for the current folder, and `--data-dir "$DIR"` with an unset variable is not to write there.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import importlib
import math
import os
import sys
import traceback
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Annotated, Any

import typer
from typer import Exit
from typer.core import TyperCommand

from cli.plog_command import PlogGroup, apply_config, ensure_config, find_default, leaf_commands, other_names_text
from cli.security_options import add_security_options, note_useless_routes
from cli.standard_streams import STDIN, STDOUT
from cli.stop_signals import exit_code_of, finish_output, obeying_stop_signals
from cli.terminal import likes_colour, say
from cli.typer_internals import ClickException, NoArgsIsHelpError
from core import VERSION
from core.common.decompression_limit import PLOG_MAX_EXPANSION, parse_size
from core.common.errors import AccessError, DamagedAnswerError, KafkaError, PlogError, UsageError
from core.common.filesystem import access_error

_INT16, _INT32, _INT64 = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
_GIGABYTE = 1 << 30
_MOST = 1_000_000_000
"""The largest number of seconds, milliseconds, or records a second, for options with a fraction."""
_LEAST = 1e-6
"""The least number above 0: at fewer records a second, the pause between two is longer than the system can wait."""

_LARGEST = {
    "--replication-factor": _INT16,
    "--partitions": _INT32,
    "--partition": _INT32,
    "--transaction-timeout-ms": _INT32,
    "--batch-size": _GIGABYTE,
    "--chunk": _GIGABYTE,
    "--record-size": _GIGABYTE,
    "--dedupe-buffer-size": 64 * _GIGABYTE,
}
"""The largest whole numbers, if smaller than an offset may be: limits of Kafka's protocol, or bytes in memory."""


def check_values(command: Any) -> None:  # typer hides its Command class
    """Makes the command refuse numbers beyond the limits, and empty paths, as used wrongly."""
    for parameter in command.params:
        kind = parameter.type.name
        if kind == "path":
            _convert_by(parameter, _refuse_empty)
        elif kind.split()[0] in ("int", "integer"):
            _limit(parameter, _LARGEST.get(parameter.opts[0], _INT64), is_whole=True)
        elif kind.startswith("float"):
            _limit(parameter, _MOST, is_whole=False)


def _convert_by(parameter: Any, convert: Callable[..., Any]) -> None:
    """Has values converted by this function, which is given the type's own first."""
    type_ = copy.copy(parameter.type)  # which others have as well
    type_.convert = partial(convert, type_.convert)
    parameter.type = type_


def _limit(option: Any, largest: int, *, is_whole: bool) -> None:
    def limited(convert: Callable[..., Any], value: Any, parameter: Any, context: Any) -> Any:
        number = convert(value, parameter, context)
        if number is not None and 0 < abs(number) < _LEAST:
            raise typer.BadParameter(f"{value} is too small, expected at least {_LEAST:f}", context, parameter)
        if number is None or (math.isfinite(number) and -largest - 1 <= number <= largest):
            return number
        least = getattr(option.type, "min", None)
        least = (-largest - 1 if is_whole else -largest) if least is None else least
        raise typer.BadParameter(f"{value} is out of range, expected {least} to {largest}", context, parameter)

    _convert_by(option, limited)


def _refuse_empty(convert: Callable[..., Any], value: Any, parameter: Any, context: Any) -> Any:
    if value == "":
        name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.human_readable_name
        raise UsageError(f"{name} is an empty path", hint="is a variable unset? This folder is called .")
    return convert(value, parameter, context)


COMMANDS = {
    "serve": "Run a broker that every Kafka client can talk to.",
    "topic": "Create, list, describe, alter and delete topics.",
    "produce": "Write records from stdin or files to a topic.",
    "consume": "Read records of topics to stdout.",
    "redrive": "Send dead letters back to where they came from.",
    "group": "Consumer groups: who is in them, and how far they have read.",
    "transaction": "Transactions: which are open, which hang; abort them.",
    "config": "Settings of topics, brokers and groups: see and change them.",
    "acl": "Who may do what: list, add, remove, copy, explain ACLs.",
    "user": "The users of SCRAM, and their passwords.",
    "dump-segment": "Print what is in a segment, index, snapshot or checkpoint.",
    "inspect": "Walk through a log with the arrow keys.",
    "doctor": "What a directory is, how it is, and what to do.",
    "verify": "Check files, partitions or data directories for damage.",
    "compact": "Compact logs that nobody serves; explain why keys are there.",
    "recover": "Repair what verify finds: a plan, then --apply, --undo.",
    "diff": "Compare two copies of a partition.",
    "stats": "What a log is made of: sizes, codecs, keys, producers.",
    "gaps": "Account for every offset without a record.",
    "trace": "One record's life: batch, transaction, readers, fate.",
    "help": "Explain a word, such as offset, or a command in full.",
    "cluster": "A cluster: run it, elect leaders, move and compare replicas.",
    "cert": "Certificates: make some for tests, show whose they are.",
    "zookeeper": "Run Apache ZooKeeper, for clusters that need one.",
    "perf": "Measure how fast a topic is written and read.",
    "spark-replay": "Replay offsets of topics with Spark, exactly once.",
}
"""Name -> one line of help. The module of `cli.commands` with its `app` is imported when the command is used."""

EXIT_OUR_BUG = 4
_OUR_ERRNOS = (None, errno.EBADF, errno.EFAULT, errno.ENOTSOCK)
"""Errors of the system for wrong calls by our code."""
_ERRNOS_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_DIGITS = "integer string conversion"
"""The limit in Python's message about a number with more digits than it reads."""
EXIT_INTERRUPTED = 130


class LazyGroup(PlogGroup):
    """Lists every command without importing any."""

    _is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer hides its Context class
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if self._is_listing:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name], rich_markup_mode=_markup_mode())
        profile = ctx.params.get("profile")
        ensure_config(COMMANDS, _load)
        command = _load(cmd_name)
        command.name = cmd_name
        apply_config(command, cmd_name, profile)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False


def _load(name: str) -> Any:
    """Imports the command, and adds the options that many have."""
    module = importlib.import_module(f"{__package__}.commands.{name.replace('-', '_')}")
    command = typer.main.get_command(module.app)
    for path, one in leaf_commands(command, name):
        add_security_options(one)
        one.epilog = other_names_text(one, path)
        check_values(one)
    return command


def _markup_mode() -> Any:  # typer's MarkupMode
    """Chooses panels and colour for a terminal; plain text, and 40 ms less, for a pipe."""
    return "rich" if likes_colour() else None


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=_markup_mode(),
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        print(f"plog {VERSION}")
        raise Exit


@app.callback()
def main(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks, and log what happens.")] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            envvar="PLOG_PROFILE",
            help="Take the defaults of this profile of config.toml (plog help config-file).",
        ),
    ] = None,
    max_expansion: Annotated[
        str | None,
        typer.Option(
            "--max-expansion",
            metavar="BYTES",
            envvar=PLOG_MAX_EXPANSION,
            help="The size that one compressed batch may expand to: 256M, 1G. Default 128M.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Kafka's log, whole, in one command: a broker, its log files, and what is in them.

    plog COMMAND --help explains a command, with an example.

    \b
    Example:
      plog dump-segment sample-data/partition/txn_multisegment-0
    """
    if debug:
        os.environ["PLOG_DEBUG"] = "1"
    max_expansion = max_expansion or find_default("max-expansion", profile)
    if max_expansion:
        parse_size(max_expansion, "max-expansion")
        os.environ[PLOG_MAX_EXPANSION] = max_expansion  # for the processes that the command starts, too


def run(args: list[str] | None = None) -> int:
    """Runs the command line, in a context of its own (PEP 567), and returns the exit code."""
    return copy_context().run(_run_here, args)


def _run_here(args: list[str] | None) -> int:
    with obeying_stop_signals():
        found = _run(args)
        note_useless_routes(is_done=not found)
        code = exit_code_of(found)
        if code > EXIT_OUR_BUG and not finish_output():
            _stop_writing()
        return code


def _run(args: list[str] | None) -> int:
    try:
        code = app(args, standalone_mode=False, prog_name="plog")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except DamagedAnswerError as error:
        return error.exit_code
    except PlogError as error:
        return _report(error)
    except ClickException as error:
        return _report_usage(error)
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _stop_writing()
        return 0
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        _stop_writing()  # which typer made an exit of
        return 0
    except OSError as error:
        return _report_refused(error)
    except Exception as error:  # noqa: BLE001 - the door of the command line
        if (mistake := _find_mistake(error)) is not None:
            return _report(mistake)
        loop = _find_loop(error)
        return _report_our_bug(error) if loop is None else _report_refused(loop)


def _report(error: PlogError) -> int:
    _show_traceback(error)
    code, hint = "", error.hint
    if isinstance(error, KafkaError):
        from cli.error_hints import find_hint

        code, hint = f"{error.code.name}: ", hint or find_hint(error)
    say(f"error: {code}{error.message}")
    if hint:
        say(f"hint: {hint}")
    return error.exit_code


def _find_mistake(error: Exception) -> UsageError | None:
    """Returns the user's mistake for an error that Python itself raises, or None."""
    if isinstance(error, ValueError) and _DIGITS in str(error):
        return UsageError("a number has too many digits", hint="at most 19 are allowed")
    if isinstance(error, RecursionError):
        return UsageError("a pattern, an expression or a file is nested deeper than plog can follow")
    if isinstance(error, UnicodeEncodeError):
        return UsageError(f"{error.object[error.start : error.end]!r} is no text that UTF-8 can have")
    return None


def _find_loop(error: Exception) -> OSError | None:
    """Finds the system's error about a link to itself, which pathlib turns into a RuntimeError."""
    found = error.__context__
    return found if isinstance(found, OSError) and found.errno == errno.ELOOP else None


def _report_refused(error: OSError) -> int:
    if error.filename == STDOUT:
        _stop_writing()
    elif error.filename != STDIN and error.errno in _OUR_ERRNOS:
        return _report_our_bug(error)
    failure = _refused(error)
    failure.__cause__ = error
    return _report(failure)


def _refused(error: OSError) -> AccessError:
    """Turns an unexpected error of the system into AccessError: a share went away, or a folder changed."""
    path = error.filename2 or error.filename
    if path in (STDIN, STDOUT):
        return access_error(error, path, "read" if path == STDIN else "write")
    doing = "write" if error.errno in _ERRNOS_OF_WRITING else "read or write"
    failure = access_error(error, os.fsdecode(path) if isinstance(path, str | bytes) else "", doing)
    failure.message += f" (errno {error.errno})"
    return failure


def _report_usage(error: Any) -> int:  # typer's ClickException
    if isinstance(error, NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)
        return 2
    message = error.format_message().replace("\n\t", " ")  # the choices of an argument are lines of their own
    say(f"error: {message}")
    if (context := getattr(error, "ctx", None)) is not None:
        say(f"hint: {context.command_path} --help")
    return 2


def _report_our_bug(error: Exception) -> int:
    _show_traceback(error)
    ours = {name.partition(".")[0] for name in (__name__, AccessError.__module__)}
    if isinstance(error, ImportError) and error.name and error.name.partition(".")[0] not in ours:
        say(f"error: a package of plog's installation is missing or broken: {error}")
        say("hint: pip install --upgrade --force-reinstall plog-kafka")
        return AccessError.exit_code
    say(f"error: plog met a bug of its own: {type(error).__name__}: {error}")
    say("hint: run it again as plog --debug ..., and report what it prints")
    return EXIT_OUR_BUG


def _show_traceback(error: Exception) -> None:
    """Shows the traceback with --debug; the exit code is the same without."""
    if "PLOG_DEBUG" in os.environ:
        traceback.print_exception(error)


def _stop_writing() -> None:
    """Drops unwritten output: nobody reads it any more, and Python must not complain of that at exit."""
    with contextlib.suppress(OSError):  # of a stdout that is closed, which has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
