"""Files with settings of clients: Kafka's client.properties, kcat.conf, rpk's profiles.

A value may be taken from elsewhere, as by Kafka's config providers, which need not be declared:

    sasl.password=${env:KAFKA_PASSWORD}                     a variable of the environment
    sasl.password=${file:/run/secrets/kafka.properties:password}   a key of a properties file
    ssl.key.password=${directory:/run/secrets:password}      a whole file
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from core.common.errors import UsageError
from core.common.printable import did_you_mean
from core.common.properties_file import parse_properties
from core.security.client_settings import LIBRDKAFKA_SETTINGS, SECRET_SETTINGS, ensure_known, is_heeded

_ANY_REFERENCE = re.compile(r"\$\{([^}:]*):[^}]*\}")
"""References, as org.apache.kafka.common.config.ConfigTransformer finds them."""

REFERENCE = re.compile(r"\$\{(env|file|directory):([^}:]*)(?::([^}]*))?\}")
_MOST_BYTES = 1 << 20
_SPACE = " \t\r\f\v"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_RPK_SUFFIXES = (".yaml", ".yml")
_RPK_LINE = re.compile(r"^(rpk|kafka_api|profiles):", re.MULTILINE)
_RPK_TOKEN = "token:"  # noqa: S105 - what stands before one


def read_settings_file(path: Path) -> tuple[dict[str, str], list[str]]:
    """Reads the settings, with references replaced, and warnings. Raises UsageError if it can't be read, or has an
    unknown name; the error never shows a value.
    """
    text = _read(path)
    if path.suffix in _RPK_SUFFIXES or _RPK_LINE.search(text):
        settings = _of_rpk(text, path)
    elif _is_kcats(text):
        settings = _of_kcat(text, path)
    else:
        settings = parse_properties(text, str(path))
    ensure_known(settings, f"{path}: ")
    secrets = {name: value for name, value in settings.items() if name in SECRET_SETTINGS}
    holds_secrets = not all(map(is_reference, secrets.values()))
    warnings = [_readable_by_others(path)] if holds_secrets else []
    warnings += [] if settings else [f"{path} holds no setting"]
    warnings += [_odd_secret(f"{path}: {name}", value) for name, value in secrets.items() if not is_reference(value)]
    warnings += reference_warnings(settings, str(path))
    return replace_references(settings, str(path)), [warning for warning in warnings if warning]


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"could not read {path}: {(error.strerror or str(error)).lower()}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path} is no file of settings: it has more than {_MOST_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if _BINARY.search(data) or data.startswith(_UTF_16):
            hint = "save it as UTF-8" if data.startswith(_UTF_16) else None
            raise UsageError(f"{path} is no file of settings: it is no UTF-8", hint=hint) from None
        return data.decode("latin-1")  # as Java reads properties


def _readable_by_others(path: Path) -> str:
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if os.name != "posix" or not mode & (stat.S_IRGRP | stat.S_IROTH):
        return ""
    return f"{path} holds a secret, and others can read it: chmod 600 {path}"


def _odd_secret(where: str, value: str) -> str:
    if re.fullmatch(r"\$\{.*|\$\w+", value):
        return (
            f"{where} looks like a reference, and is taken as it stands: expected ${{env:NAME}} or ${{file:PATH:KEY}}"
        )
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return f"{where} stands in quotation marks, which are taken as a part of the value"
    if " #" in value:
        return f"{where} has a # in it, which does not begin a comment there: a comment needs a line of its own"
    return ""


def _is_kcats(text: str) -> bool:
    names = {line.partition("=")[0].strip() for line in text.split("\n")}
    return bool(names & LIBRDKAFKA_SETTINGS) and "sasl.jaas.config" not in names


def _of_kcat(text: str, path: Path) -> dict[str, str]:
    """Reads librdkafka's files: a backslash is a backslash, and lines are not joined."""
    settings = {}
    for number, whole in enumerate(text.split("\n"), 1):
        line = whole.strip(_SPACE)
        name, separator, value = line.partition("=")
        if line[:1] in ("#", ""):
            continue
        if not separator:
            raise UsageError(
                f"{path}: line {number}: expected KEY=VALUE",
                hint="in a file with names of librdkafka's, such as sasl.username, each setting is one line",
            )
        settings[name.strip(_SPACE)] = value.strip(_SPACE)
    return settings


# --- references


def is_reference(value: str) -> bool:
    """Returns whether a value is a reference, as a whole, or in sasl.jaas.config in part."""
    if REFERENCE.fullmatch(value.strip()):
        return True
    secrets = re.findall(r"(?:password|clientSecret)\s*=\s*(\S+)", value)
    return bool(secrets) and all(REFERENCE.match(secret.strip("\"'")) for secret in secrets)


def replace_references(
    settings: Mapping[str, str], where: str, is_heeded: Callable[[str], bool] = is_heeded
) -> dict[str, str]:
    """Raises UsageError for a reference without a target, and for one of a config provider that plog does not have, in
    a setting that `is_heeded`: left as it is, it would be sent as a password.
    """
    for name, value in settings.items():
        _ensure_own_providers(name, value, where, is_heeded)

    def found(match: re.Match[str], name: str) -> str:
        provider, path, key = match[1], match[2], match[3]
        try:
            return _found(provider, path, key)
        except UsageError as error:
            raise UsageError(f"{where}: {name}: {match[0]}: {error.message}", hint=error.hint) from None

    return {
        name: REFERENCE.sub(lambda match, name=name: found(match, name), value)  # type: ignore[misc]
        for name, value in settings.items()
    }


def _ensure_own_providers(name: str, value: str, where: str, is_heeded: Callable[[str], bool]) -> None:
    """A message shows only the provider's name: the rest may be a part of a password."""
    declared = _DECLARED.fullmatch(name)
    if declared is not None and declared[1] in _PROVIDERS and value.strip() != _PROVIDERS[declared[1]]:
        raise UsageError(
            f"{where}: {name}: plog has no such config provider",
            hint=f"${{{declared[1]}:..}} is read as by {_PROVIDERS[declared[1]]}",
        )
    for found in _ANY_REFERENCE.finditer(value) if is_heeded(name) else ():
        if found[1] not in _PROVIDERS:
            shown = found[1] if re.fullmatch(r"[\w.-]{1,32}", found[1]) else ".."
            raise UsageError(
                f"{where}: {name}: ${{{shown}:..}} is of a config provider that plog does not have",
                hint="${env:NAME}, ${file:PATH:KEY} or ${directory:PATH:FILE}; a secret that just looks like this can "
                "be taken from there",
            )


_DECLARED = re.compile(r"config\.providers\.([^.]+)\.class")
_PROVIDERS = {
    name: f"org.apache.kafka.common.config.provider.{kind}ConfigProvider"
    for name, kind in (("env", "EnvVar"), ("file", "File"), ("directory", "Directory"))
}


def reference_warnings(settings: Mapping[str, str], where: str) -> list[str]:
    """Warns of files with secrets that others can read, and of login modules, whose references are replaced before they
    are parsed, as Kafka does it.
    """
    name = "sasl.jaas.config"
    files = [
        Path(found[2], found[3] or "") if found[1] == "directory" else Path(found[2])
        for secret in SECRET_SETTINGS & settings.keys()
        for found in REFERENCE.finditer(settings[secret])
        if found[1] != "env"
    ]
    return [warning for path in dict.fromkeys(files) if (warning := _readable_by_others(path))] + [
        f"{where}: {name}: the value of {match[0]} has a quotation mark or a backslash, which needs a backslash "
        "before it there, as in Kafka; sasl.username and sasl.password take the value as it is"
        for match in REFERENCE.finditer(settings.get(name, ""))
        if re.search(r"[\"\\]", replace_references({name: match[0]}, where)[name])
    ]


def _found(provider: str, path: str, key: str | None) -> str:
    if provider == "env":
        if path not in os.environ:
            raise UsageError(f"the environment has no {path}", hint=f"export {path}=..")
        return os.environ[path]
    if not key:
        raise UsageError("it names no key", hint="${file:PATH:KEY}, ${directory:PATH:FILE}, ${env:NAME}")
    if provider == "directory":
        if Path(key).name != key:
            raise UsageError(f"{key} is no file of that directory")
        return _read(Path(path, key)).rstrip("\r\n")  # as editors and echo end a file
    values = parse_properties(_read(Path(path)), path)
    if key not in values:
        raise UsageError(f"{path} has no {key}")
    return values[key]


# --- rpk


def _of_rpk(text: str, path: Path) -> dict[str, str]:
    """Reads a profile (`rpk profile print`), or the current profile of a whole rpk.yaml."""
    try:
        import yaml
    except ImportError as error:
        raise UsageError(
            "an rpk profile needs more packages: pyyaml", hint="pip install 'plog-kafka[security]'"
        ) from error
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise UsageError(f"{path} is no YAML{f': line {mark.line + 1}' if mark else ''}") from None
    profile = _mapping(found, "the file", path)
    if "profiles" in profile:
        name = profile.get("current_profile")
        chosen = [one for one in profile["profiles"] or [] if isinstance(one, dict) and one.get("name") == name]
        if not chosen:
            raise UsageError(f"{path} has no profile {name!r}, which it says is the current one")
        profile = chosen[0]
    api = profile.get("kafka_api") or _mapping(profile.get("rpk") or {}, "rpk", path).get("kafka_api")
    return _of_kafka_api(_mapping(api, "kafka_api", path), path)


def _mapping(value: Any, name: str, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {name} is no mapping, expected an rpk profile with kafka_api")
    return value


_RPK_TLS = {
    "ca_file": "ssl.ca.location",
    "truststore_file": "ssl.ca.location",
    "cert_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
}


def _ensure_names(mapping: dict[str, Any], known: Collection[str], where: str, path: Path) -> None:
    for name in mapping:
        if name not in known:
            hint = did_you_mean(str(name), known) or f"{where} has {', '.join(known)}"
            raise UsageError(f"{path}: {where}.{name}: plog does not know it", hint=hint)


def _of_kafka_api(api: dict[str, Any], path: Path) -> dict[str, str]:
    _ensure_names(api, ("brokers", "tls", "sasl"), "kafka_api", path)
    settings = {}
    brokers = api.get("brokers") or []
    if brokers:
        settings["bootstrap.servers"] = ",".join(map(str, brokers))
    tls = api.get("tls")
    has_tls = tls is not None and (not isinstance(tls, dict) or tls.get("enabled", True) is not False)
    if has_tls and tls:
        tls = _mapping(tls, "tls", path)
        _ensure_names(tls, ("enabled", "insecure_skip_verify", *_RPK_TLS), "tls", path)
        for name, value in tls.items():
            if name in _RPK_TLS and value:
                settings[_RPK_TLS[name]] = str(value)
            elif name == "insecure_skip_verify":
                settings["enable.ssl.certificate.verification"] = str(not value).lower()
    sasl = api.get("sasl")
    if sasl:
        sasl = _mapping(sasl, "sasl", path)
        _ensure_names(sasl, ("user", "password", "mechanism", "type"), "sasl", path)
        settings["sasl.mechanism"] = str(sasl.get("mechanism") or sasl.get("type") or "SCRAM-SHA-256")
        password = str(sasl.get("password") or "")
        if settings["sasl.mechanism"].upper() == "OAUTHBEARER":
            settings["sasl.oauthbearer.token"] = password.removeprefix(_RPK_TOKEN)
        else:
            settings |= {"sasl.username": str(sasl.get("user") or ""), "sasl.password": password}
    settings["security.protocol"] = ("SASL_" if sasl else "") + ("SSL" if has_tls else "PLAINTEXT")
    return settings
