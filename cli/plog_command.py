"""The class of every command, and of every group of them: they take the names that `cli/option_aliases.py` has, and say
what was meant by one that nobody has.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from cli.data_location import level_of
from cli.option_aliases import COMMANDS_MEANT, FLAG, SETTINGS, Convert, Setting, hint_of, names_by_meaning, other_names
from cli.options import say
from cli.typer_internals import NoSuchOption, OptionParser, ParsingState
from core.common.did_you_mean import did_you_mean
from core.common.errors import UsageError

_WIDTH = 76
_IS_APPLIED = "plog.is_applied"


class PlogCommand(TyperCommand):
    def make_parser(self, ctx: Any) -> OptionParser:
        parser = _Parser(ctx)
        for parameter in self.get_params(ctx):
            parameter.add_to_parser(parser, ctx)
        parser.add_other_names(_path(ctx))
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except NoSuchOption as error:
            raise _no_such_option(ctx, error.option_name) from error
        _ensure_text(ctx)
        _choose_apply(ctx)
        return rest


class PlogGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            rest = super().parse_args(ctx, args)
            _ensure_text(ctx)
            return rest
        except NoSuchOption as error:
            meant = next((word for word in words if word.startswith("--") and word[2:] in self.commands), None)
            if meant is None:
                raise _no_such_option(ctx, error.option_name) from error
            words.remove(meant)
            hint = f"{ctx.command_path} {shlex.join([meant[2:], *words])}"
            raise UsageError(f"{ctx.command_path} has no {error.option_name}", hint=hint) from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            raise _no_such_command(ctx, args[0], known)
        return super().resolve_command(ctx, args)


def _ensure_text(ctx: Any) -> None:
    """Raises UsageError for a word that is no UTF-8: only paths, and keys, may be any bytes."""
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name)
        if parameter.name == "key" or str(parameter.metavar or "").startswith(("PATH", "FILE")):
            continue
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and not text.isascii() and _SURROGATE.search(text):
                is_option = parameter.param_type_name == "option"
                name = parameter.opts[0] if is_option else argument_title(parameter)
                raise UsageError(
                    f"{name} {text!r}: it is no UTF-8", hint="LC_ALL=C.UTF-8, in a terminal that is set to it"
                )


_SURROGATE = re.compile("[\ud800-\udfff]")
"""What Python makes of a byte of the command line that is no UTF-8."""


def _no_such_command(ctx: Any, name: str, known: list[str]) -> UsageError:
    hint = COMMANDS_MEANT.get(_path(ctx), {}).get(name) or did_you_mean(name, known)
    return UsageError(f"no such command {name!r}", hint=hint or f"{ctx.command_path} --help lists the commands")


def _no_such_option(ctx: Any, name: str) -> UsageError:
    return UsageError(f"{ctx.command_path} has no {name}", hint=_hint(ctx, name))


def _hint(ctx: Any, name: str) -> str:
    known = set(_long_names(ctx))
    hint = hint_of(_path(ctx), name)
    meant = _MEANT_OPTION.match(hint or "")
    if meant is not None and meant[1] not in known:  # which other commands have
        hint = None
    if hint is None and name.startswith("--"):
        hint = did_you_mean(name[2:], (option[2:] for option in known))
        hint = hint and hint.replace("mean ", "mean --", 1)
    return hint or f"{ctx.command_path} --help"


_MEANT_OPTION = re.compile(r"did you mean (--[a-z-]+)")


def _long_names(ctx: Any) -> Iterator[str]:
    own = option_names(ctx.command)
    return (name for name in (*own, *other_names(_path(ctx), own)) if name.startswith("--"))


def leaf_commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Gives a command by its words, or, if it is a group, each command below it."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, one in below.items():
        yield from leaf_commands(one, f"{path} {name}")


def option_names(command: Any) -> set[str]:
    """Gives the names that a command's options are declared with."""
    options = (parameter for parameter in command.params if parameter.param_type_name == "option")
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def argument_title(argument: Any) -> str:
    """Gives the argument's name as help shows it, without brackets and dots."""
    return str(argument.metavar or argument.name.upper()).strip("[].")


def other_names_text(command: Any, path: str) -> str | None:
    """Writes the line of a command's help that has the other names, with what they mean; None if there are none."""
    arguments = {p.name: argument_title(p) for p in command.params if p.param_type_name == "argument"}
    pieces = [
        f"{' '.join(names)} ({arguments.get(meant, meant)})"
        for meant, names in names_by_meaning(path, option_names(command)).items()
    ]
    text = textwrap.fill(f"Other names: {', '.join(pieces)}", _WIDTH, break_on_hyphens=False)
    return f"\b\n{text}" if pieces else None


def _path(ctx: Any) -> str:
    """Gives the command's words without `plog`."""
    return " ".join(ctx.command_path.split(" ")[1:])


# --- the names that are taken


class _Parser(OptionParser):
    """Knows the other names. What they mean for arguments goes where it would without them; owned by one task."""

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self._named: list[tuple[int, str]] = []
        """What names gave to arguments: (number of the argument, its value)."""
        self._settings = _TypedSettings(_path(ctx))

    def add_other_names(self, path: str) -> None:
        if "-X" in self._short_opt:
            self._settings.option = self._short_opt["-X"]
            self._short_opt["-X"] = self._long_opt["--command-property"] = self._settings  # type: ignore[assignment]
        own = {**self._short_opt, **self._long_opt}
        for name, meant in other_names(path, own).items():
            self._add(name, own[meant] if isinstance(meant, str) else _Converted(self, meant))
        if "--dry-run" in own and "--apply" not in own:
            for name in ("--apply", "--execute"):  # which is what such a command does anyway
                self._add(name, _Applied(self.ctx))

    def give(self, target: str, value: str, state: ParsingState) -> None:
        """Gives the value to an option, or to an argument by its parameter's name."""
        if target.startswith("-"):
            self._long_opt[target].process(value, state)
        else:
            number = next(n for n, argument in enumerate(self._args) if argument.dest == target)
            self._named.append((number, value))

    def _add(self, name: str, option: Any) -> None:
        (self._long_opt if name.startswith("--") else self._short_opt)[name] = option

    def _process_args_for_args(self, state: ParsingState) -> None:
        if self.ctx is None or not self.ctx.resilient_parsing:
            self._settings.act(self._long_opt, state)
        named: set[int] = set()
        for number, value in sorted(self._named, key=lambda one: one[0]):
            takes_all = self._args[number].nargs == -1
            if number in named and not takes_all:  # or one of them would be taken for the argument after it
                title = argument_title(self._args[number].obj)
                raise UsageError(f"{title} is given more than once", hint="give it once")
            named.add(number)
            state.largs.insert(len(state.largs) if takes_all else number, value)
        super()._process_args_for_args(state)


class _Converted:
    """An option that stands for others."""

    takes_value = True
    nargs = 1

    def __init__(self, parser: _Parser, convert: Convert) -> None:
        self._parser = parser
        self._convert = convert

    def process(self, value: str, state: ParsingState) -> None:
        for target, one in self._convert(value):
            self._parser.give(target, one, state)


class _TypedSettings:
    """`-X KEY=VALUE` on the command line of one command, where `SETTINGS` act. In a file, which other tools share, they
    are passed over. Owned by one task.
    """

    takes_value = True
    nargs = 1

    def __init__(self, path: str) -> None:
        self.option: Any = None  # the option -X itself, which keeps all that is of the connection
        self._path = path
        self._typed: list[str] = []

    def process(self, value: str, state: ParsingState) -> None:
        self._typed.append(value)
        self.option.process(value, state)

    def act(self, options: Mapping[str, Any], state: ParsingState) -> None:
        """Gives their values to the options that do the same, and says which, and which change nothing. Raises
        UsageError for one that the command can't obey, and for one that says something else than an option.
        """
        if not self._typed:
            return
        from core.security.client_settings import canonical_name, is_passed_over

        idle, taken = [], []
        for text in self._typed:
            given, separator, value = text.partition("=")
            if not separator:
                continue  # whoever reads the settings refuses it
            name = canonical_name(given.strip())
            setting = SETTINGS.get(name)
            if setting is None or (setting.commands and self._path not in setting.commands):
                if is_passed_over(name):
                    idle.append(given.strip())
                continue
            option = options.get(setting.option)
            value = _resolved(given, value.strip())
            is_default = option is None and value.lower() == setting.default
            if is_default or value in setting.harmless or value.lower() in setting.harmless:
                idle.append(given.strip())
            elif option is not None:
                found = _value_of(setting, given.strip(), value)
                self._give(f"{given.strip()}={value}", found, setting, option, state)
                taken.append(f"{given.strip()} is {setting.option} {found}".strip())
            elif setting.only_tunes:
                idle.append(given.strip())
            else:
                raise UsageError(f"{given.strip()}={value}: plog {self._path} has no option for it", hint=setting.hint)
        if taken:
            say(f"note: {', '.join(taken)}")
        if idle:
            say(f"note: {', '.join(dict.fromkeys(idle))} {'change' if len(idle) > 1 else 'changes'} nothing here")

    def _give(self, text: str, value: str, setting: Setting, option: Any, state: ParsingState) -> None:
        there = state.opts.get(option.dest)
        if there is None:
            option.process(None if value == FLAG else value, state)
        elif value != FLAG and there != value:
            raise UsageError(f"{setting.option} {there} and {text} are both set, and differ", hint="say one of them")


def _resolved(name: str, value: str) -> str:
    """Takes the value from where a reference says, as ${env:NAME}."""
    if "${" not in value:
        return value
    from core.client.net.client_config import replace_references

    return replace_references({name: value}, "-X")[name]


def _value_of(setting: Setting, name: str, value: str) -> str:
    """Gives what the option takes for that value of the setting; raises UsageError if there is nothing."""
    values = setting.values
    if values is None:
        found: str | None = value
    else:
        found = values(value) if callable(values) else values.get(value.lower())
    if found is None or not value:
        one_of = None if values is None or callable(values) else f"one of {', '.join((*values, *setting.harmless))}"
        raise UsageError(f"{name}={value}: plog can't do that", hint=setting.hint or one_of)
    return found


class _Applied:
    """`--apply` of a command that works without it, too."""

    takes_value = False
    nargs = 0

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx

    def process(self, _value: None, _state: ParsingState) -> None:
        self._ctx.meta[_IS_APPLIED] = True


def _choose_apply(ctx: Any) -> None:
    """Chooses that of --apply and --dry-run which is nearer to the command; raises UsageError if both are as near."""
    is_applied = ctx.meta.get(_IS_APPLIED, False)
    if not (is_applied or ctx.params.get("apply")) or not ctx.params.get("dry_run"):
        return
    of_apply, of_dry_run = 0 if is_applied else level_of(ctx, "apply"), level_of(ctx, "dry_run")
    if of_apply == of_dry_run:
        raise UsageError("--apply and --dry-run contradict each other", hint="say one of them")
    ctx.params["dry_run" if of_apply < of_dry_run else "apply"] = False


def use_plog_classes(app: typer.Typer) -> None:
    """Makes these the classes of all commands of the app, which don't say so themselves."""
    app.info.cls = PlogGroup
    for command in app.registered_commands:
        command.cls = PlogCommand
