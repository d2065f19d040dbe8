"""Changes settings, if the server knows them: it is asked, as brokers of other makers have settings of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from cli.terminal import say
from core.client.admin.admin import Admin, AlterOperation
from core.common.config_def import KEPT_ONLY, ConfigResourceType, ConfigType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, PlogError, UsageError
from core.common.printable import did_you_mean
from core.protocol.schema.configs import ChangedConfig, DescribedConfig


def alter_settings(
    admin: Admin,
    type_: ConfigResourceType,
    name: str,
    changes: list[ChangedConfig],
    *,
    title: str,
    validate_only: bool,
) -> None:
    """Makes the changes, or only asks whether they could be made. `title` names the resource in messages.

    Refuses to delete an unknown key, which a server silently accepts, and suggests a setting for a key that the server
    refuses. Raises KafkaError (INVALID_CONFIG). The defaults of all brokers (no name) are not checked: a server lists
    only those that are set.
    """
    deleted = [change.name for change in changes if change.config_operation == AlterOperation.DELETE]
    if deleted and name:
        _ensure_settings(deleted, _names(admin, type_, name), title)
    try:
        admin.alter_configs(type_, name, changes, validate_only=validate_only)
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_CONFIG:
            _add_hint(error, [change.name for change in changes], _names(admin, type_, name))
        raise
    say_kept_only(admin, type_, name, [change.name for change in changes if change.value is not None])


def hint_at_topic_setting(error: KafkaError, keys: Collection[str]) -> None:
    """Adds to the error of a topic that could not be created a similar setting for one of these keys. A server lists
    settings only of existing topics, so these are plog's own.
    """
    from core.files.log_config import TOPIC_CONFIG

    if error.code is ErrorCode.INVALID_CONFIG:
        _add_hint(error, keys, {key.name for key in TOPIC_CONFIG})


def _add_hint(error: KafkaError, keys: Collection[str], known: set[str]) -> None:
    wrong = (key for key in keys if known and key not in known)
    error.hint = error.hint or next(filter(None, (did_you_mean(key, known) for key in wrong)), None)


def say_kept_only(admin: Admin, type_: ConfigResourceType, name: str, keys: Collection[str]) -> None:
    """Reports which of the keys have no effect. The server's own docs say so, as other brokers do act on them; a server
    without docs is no error, as the change is made.
    """
    configs: list[DescribedConfig] = []
    if keys:
        with suppress(PlogError):
            configs = admin.find_configs(type_, name, with_docs=True)
    for config in configs:
        if config.name in keys and config.documentation and config.documentation.endswith(KEPT_ONLY):
            say(f"note: {config.name} changes nothing: {KEPT_ONLY.removesuffix('.')}")


def _ensure_settings(keys: Sequence[str], known: set[str], title: str) -> None:
    unknown = [key for key in keys if known and key not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known)
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{title} has no setting {unknown[0]}", hint=hint)


def _names(admin: Admin, type_: ConfigResourceType, name: str) -> set[str]:
    """Returns the names of the resource's settings, or an empty set if the server does not list them."""
    return {config.name for config in admin.find_configs(type_, name)}


def resolve_passwords(option: str, settings: dict[str, str]) -> dict[str, str]:
    """Returns settings of a broker from the command line, with those that are passwords read from where they refer to.
    Raises UsageError for a password itself.
    """
    from core.broker.config.broker_settings import find_broker_key
    from core.client.net.client_config_files import REFERENCE, replace_references

    resolved = {}
    for name, value in settings.items():
        key = find_broker_key(name)
        if key is not None and key.type is ConfigType.PASSWORD and value:
            if REFERENCE.fullmatch(value) is None:
                raise UsageError(
                    f"{option} {name}: other users can see a secret on the command line, and the shell keeps it",
                    hint=f"{option} '{name}=${{env:NAME}}' or '{name}=${{file:PATH:KEY}}'",
                )
            value = replace_references({name: value}, option)[name]
        resolved[name] = value
    return resolved


def say_unknown(name: str) -> None:
    """Warns of an unknown broker setting, and suggests a similar one."""
    from core.broker.config.broker_settings import BROKER_CONFIG, plain_name

    say(f"warning: {name} is not known to plog and changes nothing")
    prefix = name.removesuffix(plain_name(name))
    if meant := did_you_mean(name, (prefix + key.name for key in BROKER_CONFIG)):
        say(f"hint: {meant}")
