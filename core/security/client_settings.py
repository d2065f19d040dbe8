"""Makes one description of a client's settings, by the names of Kafka's client.properties and of librdkafka.

If the two have two names for a thing, both are known. A name that neither knows is refused, with a similar one; Kafka's
settings that do not concern connections are ignored. Unsupported settings are refused by name if ignoring them would
make a connection less safe. client_settings.toml has the names of all.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import get_data
from urllib.parse import unquote, urlsplit

from core.common.errors import UsageError
from core.common.printable import did_you_mean
from core.security.client_security import (
    PLAINTEXT,
    BearerLogin,
    ClientSecurity,
    KeyStore,
    PasswordLogin,
    StoreType,
    Tls,
    TokenEndpoint,
    TrustStore,
)
from core.security.jaas import LoginModule, parse_jaas
from core.security.secret import Secret, shown_url

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
STRONGEST_FIRST = ("SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER", "PLAIN")
IN_CLEAR = ("PLAIN", "OAUTHBEARER")
"""Mechanisms that send the secret itself, the password or the token."""

_NAMES = tomllib.loads((get_data(__name__, "client_settings.toml") or b"").decode())
"""The names of settings, by what plog does with them; which list means what stands there."""

_SASL, _TLS = set(_NAMES["sasl"]), set(_NAMES["tls"])
_OURS = _SASL | _TLS | set(_NAMES["others_of_connections"])
_OF_NO_EFFECT, _OF_NO_EFFECT_PREFIXES = set(_NAMES["of_no_effect"]), tuple(_NAMES["prefixes_of_no_effect"])
_REFUSED: dict[str, list[str]] = _NAMES["refused"]
SECRET_SETTINGS, LIBRDKAFKA_SETTINGS = frozenset(_NAMES["secret"]), frozenset(_NAMES["librdkafka"])
OTHER_SETTINGS, OTHER_PREFIXES = frozenset(_NAMES["other"]), tuple(_NAMES["other_prefixes"])

_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN_MODULES = {
    "PLAIN": _PLAIN_MODULE,
    "SCRAM-SHA-256": _SCRAM_MODULE,
    "SCRAM-SHA-512": _SCRAM_MODULE,
    "OAUTHBEARER": _BEARER_MODULE,
}
_JAAS_OPTIONS = {
    _PLAIN_MODULE: {"username", "password", "serviceName"},
    _SCRAM_MODULE: {"username", "password", "tokenauth", "serviceName"},
    _BEARER_MODULE: {
        "clientId",
        "clientSecret",
        "scope",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
        "serviceName",
    },
}
_KAFKAS_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_KAFKAS_RETRIEVERS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}JwtRetriever"
    for name in ("Default", "ClientCredentials", "File")
)

_REGISTRY = "schema.registry."
AskPassword = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How a Schema Registry is reached; immutable. `user` is NAME:PASSWORD."""

    user: Secret | None = None
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Immutable. `warnings` are for a person, and show no secrets."""

    security: ClientSecurity = PLAINTEXT
    bootstrap_servers: str | None = None
    warnings: tuple[str, ...] = ()
    registry: RegistrySettings = RegistrySettings()


def parse_client_settings(settings: Mapping[str, str], ask_password: AskPassword | None = None) -> ClientSettings:
    """Parses the settings. Raises UsageError for an unknown, invalid or unsupported one; the error shows no secret.

    `ask_password` gets the name of a user whose password is not in the settings.
    """
    ensure_known(settings)
    found = _Settings(settings, ask_password)
    protocol = found.choice("security.protocol", PROTOCOLS) or "PLAINTEXT"
    security = ClientSecurity(
        tls=found.tls() if protocol.endswith("SSL") else None,
        login=found.login() if protocol.startswith("SASL") else None,
    )
    servers = found.take("bootstrap.servers", "metadata.broker.list")
    warnings = tuple(_unused(settings, security) + _unsafe(security))
    return ClientSettings(security, servers, warnings, _registry_settings(settings))


def _registry_settings(settings: Mapping[str, str]) -> RegistrySettings:
    """Builds them from the names of a cluster's settings, after `schema.registry.`; the user is common without it."""
    own = {name.removeprefix(_REGISTRY): value for name, value in settings.items() if name.startswith(_REGISTRY)}
    about_tls = {name: value for name, value in own.items() if name.startswith(("ssl.", "enable.ssl."))}
    known = _TLS - set(_NAMES["not_of_registry"])
    for name in sorted(about_tls.keys() - known - _OF_NO_EFFECT):
        hint = did_you_mean(_REGISTRY + name, {_REGISTRY + one for one in known})
        raise UsageError(f"{_REGISTRY}{name}: plog does not support this setting", hint=hint)
    if about_tls.get("ssl.certificate.location") and not (about_tls.keys() & {"ssl.key.location", "ssl.key.pem"}):
        about_tls["ssl.keystore.location"] = about_tls.pop("ssl.certificate.location")  # the key is in the same file
    user = own.get("basic.auth.user.info") or settings.get("basic.auth.user.info")
    found = _Settings(about_tls, None)
    has_tls = any(about_tls.get(name) for name in known)
    return RegistrySettings(Secret(user) if user else None, found.tls() if has_tls else None)


def parse_tls(settings: Mapping[str, str]) -> Tls:
    """Parses Kafka's `ssl.` settings, which clients and listeners have in common. Raises UsageError."""
    return _Settings(settings, None).tls()


def is_heeded(name: str) -> bool:
    """Returns whether plog uses the setting's value."""
    return name in _OURS | SECRET_SETTINGS or name.startswith(_REGISTRY)


def is_passed_over(name: str) -> bool:
    """Returns whether Kafka's clients have such a setting, and plog ignores it."""
    is_known = name in OTHER_SETTINGS or name in _OF_NO_EFFECT
    is_known |= name.startswith((*OTHER_PREFIXES, *_OF_NO_EFFECT_PREFIXES)) and not name.startswith("config.providers.")
    return is_known and not is_heeded(name)


def canonical_name(name: str) -> str:
    """Removes kcat's prefix from a setting of topics: `topic.auto.offset.reset`."""
    short = name.removeprefix("topic.")
    return short if name not in OTHER_SETTINGS and short in OTHER_SETTINGS else name


def ensure_known(settings: Mapping[str, str], where: str = "") -> None:
    """Raises UsageError for an unknown name, and a value that plog does not support; `where` begins its message."""
    for name, value in settings.items():
        if name in _OURS or name in OTHER_SETTINGS or name in _OF_NO_EFFECT:
            continue
        if name.startswith((*OTHER_PREFIXES, *_OF_NO_EFFECT_PREFIXES)):
            continue
        if name not in _REFUSED:
            raise _unknown(name, where)
        mechanism = _mechanism_of_class(value)
        if mechanism is not None:
            raise _unspoken(mechanism)
        if value.lower() not in ("", *_REFUSED[name]):
            expected = f", expected {' or '.join(_REFUSED[name])}" if _REFUSED[name] else ""
            shown = f"{name}={value}" if name != "sasl.oauthbearer.config" else name  # its value may hold secrets
            raise UsageError(f"{where}{shown}: plog does not support this{expected}")


def _unknown(name: str, where: str) -> UsageError:
    if _NAME.fullmatch(name):
        hint = did_you_mean(name, _OURS | OTHER_SETTINGS | _REFUSED.keys()) or "plog help security names them"
        return UsageError(f"{where}{name!r} is no setting of Kafka's clients", hint=hint)
    return UsageError(
        f"{where}a line that is no setting of Kafka's clients, expected KEY=VALUE",
        hint="a value that goes over several lines, as PEM does, has a backslash at the end of each",
    )


_NAME = re.compile(r"[\w-]{1,32}([. ][\w-]{1,32}){0,9}")
"""The part of an unknown name that may be shown: it may be a line of a key, or the end of a password."""

_OTHERS_MECHANISMS = {
    "AWS_MSK_IAM": (
        "MSK takes SCRAM-SHA-512 on port 9096, and a client's certificate (security.protocol=SSL) on 9094, where "
        "that is switched on"
    ),
    "GSSAPI": (
        "plog does not speak Kerberos: does the cluster have a listener with one of these, or one for a client's "
        "certificate (security.protocol=SSL)?"
    ),
}
_OTHERS_CLASSES = {"software.amazon.msk.": "AWS_MSK_IAM", "com.sun.security.auth.module.Krb5": "GSSAPI"}


def _mechanism_of_class(name: str) -> str | None:
    """Returns the mechanism, unknown to plog, of a login module or a callback handler, or None."""
    return next((mechanism for start, mechanism in _OTHERS_CLASSES.items() if name.startswith(start)), None)


def _unspoken(mechanism: str) -> UsageError:
    hint = _OTHERS_MECHANISMS.get(mechanism) or (
        "one of them, not several" if "," in mechanism else did_you_mean(mechanism, MECHANISMS)
    )
    return UsageError(
        f"sasl.mechanism={mechanism}: plog does not speak it, expected one of {', '.join(MECHANISMS)}", hint=hint
    )


def _unused(settings: Mapping[str, str], security: ClientSecurity) -> list[str]:
    """Returns warnings about settings without effect: the user forgot `security.protocol`."""
    sasl = sorted(_SASL & settings.keys()) if security.login is None else []
    tls = sorted((_TLS & settings.keys()) - {"ssl.endpoint.identification.algorithm"}) if security.tls is None else []
    return [
        f"{names[0]} does nothing: security.protocol is {security.protocol}, expected {' or '.join(wanted)}"
        for names, wanted in ((sasl, PROTOCOLS[2:]), (tls, PROTOCOLS[1::2]))
        if names
    ]


def _unsafe(security: ClientSecurity) -> list[str]:
    tls, login = security.tls, security.login
    if tls is not None and not tls.checks_certificates:
        return ["the server's certificate is not checked: anybody on the way can pretend to be the cluster"]
    if tls is not None and not tls.checks_host_names:
        return ["the server's name is not checked: anybody with a certificate of that CA can pretend to be the server"]
    if tls is None and login is not None and login.mechanism in IN_CLEAR:
        what = "password" if isinstance(login, PasswordLogin) else "token"
        return [f"{login.mechanism} without TLS: the {what} goes over the network in clear"]
    return []


class _Settings:
    def __init__(self, settings: Mapping[str, str], ask_password: AskPassword | None) -> None:
        self._settings = settings
        self._ask_password = ask_password

    def take(self, *names: str) -> str | None:
        """Returns the value of one of the names, or None. Raises UsageError if two have different values."""
        found = {name: self._settings[name] for name in names if self._settings.get(name)}
        for name, value in list(found.items())[1:]:
            self._ensure_same(next(iter(found)), next(iter(found.values())), name, value)
        return next(iter(found.values()), None)

    @staticmethod
    def _ensure_same(name: str, value: str, other_name: str, other_value: str) -> None:
        if value != other_value:
            raise UsageError(f"{name} and {other_name} are both set, and differ, expected one of them")

    def _of_either(self, options: Mapping[str, str], option: str, name: str) -> str | None:
        in_module, value = options.get(option), self.take(name)
        if in_module and value:
            self._ensure_same(f"{option} in sasl.jaas.config", in_module, name, value)
        return in_module or value

    def secret(self, *names: str) -> Secret | None:
        value = self.take(*names)
        return None if value is None else Secret(value)

    def choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        value = self.take(name)
        if value is None:
            return None
        if value.upper() not in choices:
            raise UsageError(f"{name}={value}, expected one of {', '.join(choices)}", hint=did_you_mean(value, choices))
        return value.upper()

    def is_true(self, name: str, *, default: bool) -> bool:
        value = self.choice(name, ("TRUE", "FALSE"))
        return default if value is None else value == "TRUE"

    def seconds(self, name: str, default: float) -> float:
        value = self.take(name)
        if value is None:
            return default
        if not value.isdecimal() or not int(value):
            raise UsageError(f"{name}={value}, expected milliseconds")
        return int(value) / 1000

    # --- TLS

    def tls(self) -> Tls:
        algorithm = self._settings.get("ssl.endpoint.identification.algorithm", "https").lower()
        if algorithm not in ("https", "none", ""):
            raise UsageError(f"ssl.endpoint.identification.algorithm={algorithm}, expected https or none")
        checks = self.is_true("enable.ssl.certificate.verification", default=True)
        protocols = re.split(r"[\s,]+", self.take("ssl.enabled.protocols") or "TLSv1.2,TLSv1.3")
        ours = tuple(name for name in ("TLSv1.2", "TLSv1.3") if name in protocols)
        if not ours:
            raise UsageError(f"ssl.enabled.protocols={','.join(protocols)}: plog speaks TLSv1.2 and TLSv1.3")
        return Tls(
            trust=self._trust(),
            key_store=self._key_store(),
            checks_certificates=checks,
            checks_host_names=checks and algorithm == "https",
            protocols=ours,
            ciphers=tuple(re.findall(r"[^\s,:]+", self.take("ssl.cipher.suites") or "")),
        )

    def _path(self, *names: str) -> str | None:
        path = self.take(*names)
        if path is not None and "\0" in path:
            raise UsageError(f"{names[0]} is no path: it has a null byte")
        return path

    def _store_type(self, name: str) -> StoreType | None:
        value = self.choice(name, tuple(StoreType))
        return None if value is None else StoreType(value)

    def _trust(self) -> TrustStore | None:
        store = TrustStore(
            location=self._path("ssl.truststore.location", "ssl.ca.location"),
            type=self._store_type("ssl.truststore.type"),
            password=self.secret("ssl.truststore.password"),
            certificates=self.take("ssl.truststore.certificates", "ssl.ca.pem"),
        )
        if store.location == "probe":  # librdkafka's word for the system's trust store
            return None
        if store.location and store.certificates:
            raise UsageError(
                "ssl.truststore.location and ssl.truststore.certificates are both set, expected one of them"
            )
        return store if store.location or store.certificates else None

    def _key_store(self) -> KeyStore | None:
        store = KeyStore(
            location=self._path("ssl.keystore.location"),
            type=self._store_type("ssl.keystore.type"),
            password=self.secret("ssl.keystore.password"),
            key_password=self.secret("ssl.key.password"),
            certificate_location=self._path("ssl.certificate.location"),
            key_location=self._path("ssl.key.location"),
            certificate_chain=self.take("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
            key=self.secret("ssl.keystore.key", "ssl.key.pem"),
        )
        certificate = store.certificate_location or store.certificate_chain
        key = store.key_location or store.key
        if store.location and (certificate or key):
            raise UsageError(
                "ssl.keystore.location and a certificate or key of another setting are both set, expected one of them"
            )
        if bool(certificate) != bool(key):
            missing = (
                "key (ssl.key.location, ssl.keystore.key)"
                if certificate
                else ("certificate (ssl.certificate.location, ssl.keystore.certificate.chain)")
            )
            raise UsageError(f"the {missing} is missing: the certificate and the key go together")
        return store if store.location or certificate else None

    # --- SASL

    def login(self) -> PasswordLogin | BearerLogin:
        text = self.take("sasl.jaas.config")
        module = parse_jaas(text) if text else None
        mechanism = (self.take("sasl.mechanism", "sasl.mechanisms") or _mechanism_of(module)).upper()
        if mechanism not in MECHANISMS:
            raise _unspoken(mechanism)
        options = login_options(module, mechanism)
        return self._bearer(options) if mechanism == "OAUTHBEARER" else self._password(mechanism, options)

    def _password(self, mechanism: str, options: Mapping[str, str]) -> PasswordLogin:
        name = self._of_either(options, "username", "sasl.username")
        if not name:
            raise UsageError(
                f"{mechanism} needs the name of a user", hint="sasl.username=NAME, or username= in sasl.jaas.config"
            )
        password = self._of_either(options, "password", "sasl.password")
        if not password and self._ask_password is not None:
            password = self._ask_password(name)
        if not password:
            raise UsageError(f"the password of {name} is missing", hint="sasl.password=${env:NAME} takes it from there")
        is_token = options.get("tokenauth", "false").lower() == "true"
        return PasswordLogin(mechanism, name, Secret(password), is_token)

    def _bearer(self, options: Mapping[str, str]) -> BearerLogin:
        self._ensure_kafkas("sasl.login.callback.handler.class", _KAFKAS_HANDLERS)
        self._ensure_kafkas("sasl.oauthbearer.jwt.retriever.class", _KAFKAS_RETRIEVERS)
        extensions = {k.removeprefix("extension_"): v for k, v in options.items() if k.startswith("extension_")}
        for pair in re.findall(r"[^,\s][^,]*", self.take("sasl.oauthbearer.extensions") or ""):
            key, _, value = pair.partition("=")
            extensions[key.strip()] = value.strip()
        token = self.secret("sasl.oauthbearer.token")
        if token is not None:
            return BearerLogin(token=token, extensions=extensions)
        url = self.take("sasl.oauthbearer.token.endpoint.url")
        if url is None:
            raise UsageError(
                "OAUTHBEARER needs a token",
                hint="sasl.oauthbearer.token.endpoint.url=https://.., or file:///PATH, or sasl.oauthbearer.token",
            )
        if url.startswith("file:"):
            return BearerLogin(token_file=unquote(urlsplit(url).path), extensions=extensions)
        return BearerLogin(endpoint=self._endpoint(url, options), extensions=extensions)

    def _ensure_kafkas(self, name: str, known: tuple[str, ...]) -> None:
        value = self.take(name)
        if value is not None and value not in known:
            raise UsageError(
                f"{name}={value}: plog does not support this, expected {known[0]}",
                hint=_OTHERS_MECHANISMS.get(_mechanism_of_class(value) or ""),
            )

    def _endpoint(self, url: str, options: Mapping[str, str]) -> TokenEndpoint:
        if not _keeps_secrets(url):
            raise UsageError(
                f"sasl.oauthbearer.token.endpoint.url={shown_url(url)}, "
                "expected https://.. (http only to this machine)",
                hint="the client's secret would go over the network in clear",
            )
        names = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
        client_id = self.take(*names) or options.get("clientId")
        names = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")
        secret = self.take(*names) or options.get("clientSecret")
        if not client_id or not secret:
            raise UsageError(
                "the token endpoint wants the client's id and secret",
                hint="sasl.oauthbearer.client.credentials.client.id and .secret",
            )
        location = options.get("ssl.truststore.location") or self.take("https.ca.location")
        certificates = options.get("ssl.truststore.certificates") or self.take("https.ca.pem")
        password = options.get("ssl.truststore.password")
        trust = TrustStore(location, None, Secret(password) if password else None, certificates)
        return TokenEndpoint(
            url=url,
            client_id=client_id,
            client_secret=Secret(secret),
            scope=self.take("sasl.oauthbearer.scope") or options.get("scope"),
            url_encodes_header=self.is_true("sasl.oauthbearer.header.urlencode", default=False),
            trust=trust if (location and location != "probe") or certificates else None,
            connect_timeout_s=self.seconds("sasl.login.connect.timeout.ms", 10.0),
            read_timeout_s=self.seconds("sasl.login.read.timeout.ms", 10.0),
        )


def _keeps_secrets(url: str) -> bool:
    """Returns whether nobody on the way can read the requests to that URL."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:  # an invalid host or port
        return False
    hosts = {"http": host in ("127.0.0.1", "localhost", "::1"), "https": bool(host)}
    return hosts.get(parts.scheme, False) and not re.search(r"\s", url)


def _mechanism_of(module: LoginModule | None) -> str:
    """Returns the only mechanism that the login module fits, even one that plog does not have."""
    other = _mechanism_of_class(module.name) if module is not None else None
    if other is not None:
        return other
    fitting = [name for name, of in LOGIN_MODULES.items() if module is not None and module.name == of]
    if len(fitting) == 1:
        return fitting[0]
    raise UsageError("sasl.mechanism is missing", hint=f"one of {', '.join(fitting or MECHANISMS)}")


def login_options(module: LoginModule | None, mechanism: str) -> Mapping[str, str]:
    """Returns the module's options; none without one. Raises UsageError for a module, or an option, of others."""
    if module is None:
        return {}
    if module.name != LOGIN_MODULES[mechanism]:
        raise UsageError(f"sasl.jaas.config: {module.name} is not of {mechanism}, expected {LOGIN_MODULES[mechanism]}")
    known = _JAAS_OPTIONS[module.name]
    for number, name in enumerate(module.options, 1):
        if name not in known and not (module.name == _BEARER_MODULE and name.startswith("extension_")):
            meant = did_you_mean(name, known)
            told = name if meant else f"its option {number}"  # an unknown name may be the end of a password
            raise UsageError(
                f"sasl.jaas.config: {told} is no option of {module.name.rpartition('.')[2]}",
                hint=meant or f"it has {', '.join(sorted(known))}",
            )
    return module.options
