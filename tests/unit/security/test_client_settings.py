"""Settings by Kafka's names and librdkafka's, made one description."""

from __future__ import annotations

import contextlib
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import UsageError
from core.security.client_security import BearerLogin, ClientSecurity, PasswordLogin
from core.security.client_settings import SECRET_SETTINGS, parse_client_settings
from core.security.jaas import parse_jaas
from core.security.secret import Secret
from tests.support.for_each import for_each

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def security(**settings: str) -> ClientSecurity:
    return parse_client_settings({name.replace("_", "."): value for name, value in settings.items()}).security


IAM = (
    "MSK takes SCRAM-SHA-512 on port 9096, and a client's certificate (security.protocol=SSL) on 9094, where that is "
    "switched on"
)
GSSAPI = (
    "plog does not speak Kerberos: does the cluster have a listener with one of these, or one for a client's "
    "certificate (security.protocol=SSL)?"
)


def test_nothing_is_plaintext() -> None:
    assert security() == ClientSecurity()
    assert security().protocol == "PLAINTEXT"


@for_each("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
@for_each("is_lower", [True, False])
def test_each_protocol(protocol: str, is_lower: bool) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    said = protocol.lower() if is_lower else protocol
    found = parse_client_settings({"security.protocol": said, **(login if "SASL" in protocol else {})})
    assert found.security.protocol == protocol


def test_kafkas_names_and_librdkafkas_say_the_same() -> None:
    jaas = f'{SCRAM} required username="alice" password="secret";'
    kafkas = security(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=jaas,
        ssl_truststore_location="/ca.pem",
        ssl_truststore_type="PEM",
    )
    librdkafkas = security(
        security_protocol="sasl_ssl",
        sasl_mechanisms="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password="secret",
        ssl_ca_location="/ca.pem",
    )
    assert kafkas.login == librdkafkas.login == PasswordLogin("SCRAM-SHA-512", "alice", Secret("secret"))
    assert kafkas.tls is not None and librdkafkas.tls is not None
    assert kafkas.tls.trust is not None and librdkafkas.tls.trust is not None
    assert kafkas.tls.trust.location == librdkafkas.tls.trust.location == "/ca.pem"
    assert kafkas.tls.checks_host_names and librdkafkas.tls.checks_certificates


def test_a_delegation_token() -> None:
    jaas = f'{SCRAM} required username="id" password="hmac" tokenauth="true";'
    login = security(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas).login
    assert login == PasswordLogin("SCRAM-SHA-256", "id", Secret("hmac"), is_token=True)


def test_the_mechanism_of_a_login_module_that_has_one() -> None:
    login = security(security_protocol="SASL_SSL", sasl_jaas_config=f"{PLAIN} required username=a password=b;").login
    assert login == PasswordLogin("PLAIN", "a", Secret("b"))


def test_client_credentials_by_both_names() -> None:
    url = {"sasl.oauthbearer.token.endpoint.url": "https://idp/token", "sasl.oauthbearer.scope": "kafka"}
    base = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **url}
    jaas = f'{BEARER} required clientId="id" clientSecret="pw" extension_logicalCluster="lkc-1";'
    forms = [
        {"sasl.jaas.config": jaas},
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "id",
            "sasl.oauthbearer.client.secret": "pw",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
        },
        {
            "sasl.oauthbearer.client.credentials.client.id": "id",
            "sasl.oauthbearer.client.credentials.client.secret": "pw",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
        },
    ]
    logins = [parse_client_settings({**base, **form}).security.login for form in forms]
    assert logins[0] == logins[1] == logins[2]
    login = logins[0]
    assert isinstance(login, BearerLogin) and login.endpoint is not None
    assert (login.endpoint.client_id, login.endpoint.client_secret, login.endpoint.scope) == (
        "id",
        Secret("pw"),
        "kafka",
    )
    assert (login.endpoint.connect_timeout_s, login.endpoint.read_timeout_s) == (10.0, 10.0), "as of Kafka's clients"
    assert login.extensions == {"logicalCluster": "lkc-1"}


def test_a_token_of_a_file() -> None:
    login = security(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="file:///run/a%20token",
    ).login
    assert login == BearerLogin(token_file="/run/a token")


def test_settings_that_do_not_concern_us_are_passed_over() -> None:
    settings = {
        "bootstrap.servers": "a:1,b:2",
        "group.id": "g",
        "acks": "all",
        "queue.buffering.max.ms": "5",
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "schema.registry.url": "https://sr",
        "sasl.kerberos.service.name": "kafka",
        "topic.request.required.acks": "1",
        "sasl.oauthbearer.method": "",
        "client.dns.lookup": "use_all_dns_ips",
    }
    found = parse_client_settings(settings)
    assert found.bootstrap_servers == "a:1,b:2"
    assert found.security == ClientSecurity()


def over_sasl(mechanism: str, **more: str) -> dict[str, str]:
    settings = {"security.protocol": "SASL_SSL", **{name.replace("_", "."): value for name, value in more.items()}}
    return settings | ({"sasl.mechanism": mechanism} if mechanism else {})


def over_tls(**more: str) -> dict[str, str]:
    return {"security.protocol": "SSL", **{name.replace("_", "."): value for name, value in more.items()}}


MSK = "software.amazon.msk.auth.iam"
BOTH_SET = "are both set, and differ"
UNSPOKEN = "plog does not speak it, expected one of PLAIN, SCRAM-SHA-256"


@for_each(
    "settings, message, hint",
    [
        ({"sasl.mechanim": "PLAIN"}, "'sasl.mechanim' is no setting", "did you mean sasl.mechanism?"),
        ({"security.protocol": "SASL-SSL"}, "expected one of PLAINTEXT, SSL", "did you mean SASL_SSL?"),
        ({"ssl.crl.location": "/x"}, "plog does not support this", None),
        ({"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "client_credentials", None),
        ({"enable.sasl.oauthbearer.unsecure.jwt": "true"}, "plog does not support this", None),
        # mechanisms
        (over_sasl("GSSAPI"), "does not speak it, .* SCRAM-SHA-512", GSSAPI),
        (over_sasl("PLAIN,SCRAM-SHA-256"), "one of", "one of them, not several"),
        (
            over_sasl("", sasl_jaas_config="com.sun.security.auth.module.Krb5LoginModule required;"),
            "sasl.mechanism=GSSAPI: plog does not speak it",
            GSSAPI,
        ),
        (
            over_sasl("OAUTHBEARER", sasl_login_callback_handler_class=f"{MSK}.IAMOAuthBearerLoginCallbackHandler"),
            "plog does not support this",
            IAM,
        ),
        (over_sasl("AWS_MSK_IAM"), "does not speak it, .* SCRAM-SHA-512", IAM),
        (
            over_sasl("", sasl_jaas_config=f"{MSK}.IAMLoginModule required;"),
            "sasl.mechanism=AWS_MSK_IAM: plog does not speak it",
            IAM,
        ),
        (
            over_sasl("AWS_MSK_IAM", sasl_client_callback_handler_class=f"{MSK}.IAMClientCallbackHandler"),
            f"sasl.mechanism=AWS_MSK_IAM: {UNSPOKEN}",
            IAM,
        ),
        # said twice
        (
            over_sasl("PLAIN", sasl_mechanisms="SCRAM-SHA-256"),
            f"sasl.mechanism and sasl.mechanisms {BOTH_SET}",
            None,
        ),
        (
            over_tls(ssl_truststore_location="/a", ssl_ca_location="/b"),
            "ssl.truststore.location and ssl.ca.location are both set",
            None,
        ),
        (
            over_sasl("", sasl_jaas_config=f"{PLAIN} required username=a password=b;", sasl_username="c"),
            f"username in sasl.jaas.config and sasl.username {BOTH_SET}",
            None,
        ),
        # missing, or of no use
        (over_sasl(""), "sasl.mechanism is missing", None),
        (over_sasl("PLAIN"), "name of a user", None),
        (
            over_sasl("PLAIN", sasl_username="al"),
            "password of al is missing",
            "sasl.password=${env:NAME} takes it from there",
        ),
        (over_tls(ssl_enabled_protocols="TLSv1.1"), "TLSv1.2 and TLSv1.3", None),
        (over_tls(ssl_truststore_type="BKS"), "PEM, PKCS12, JKS", None),
        (over_tls(ssl_key_location="/k"), "certificate .* is missing", None),
        (over_tls(ssl_certificate_location="/k"), "key .* is missing", None),
        (over_tls(ssl_endpoint_identification_algorithm="ldaps"), "https or none", None),
        (over_sasl("OAUTHBEARER", sasl_oauthbearer_token_endpoint_url="http://idp/token"), "expected https", None),
        (
            over_sasl("PLAIN", sasl_jaas_config=f"{PLAIN} required user=a;"),
            "user is no option",
            "did you mean username?",
        ),
        (over_sasl("PLAIN", sasl_jaas_config=f"{SCRAM} required username=a password=b;"), "is not of PLAIN", None),
    ],
)
def test_what_is_wrong_is_refused(settings: dict[str, str], message: str, hint: str | None) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        parse_client_settings(settings)
    if hint is not None:
        assert raised.value.hint == hint


def test_a_password_that_is_missing_is_asked_for() -> None:
    login = parse_client_settings(over_sasl("PLAIN", sasl_username="al"), lambda name: f"of {name}").security.login
    assert login == PasswordLogin("PLAIN", "al", Secret("of al"))


@for_each(
    "settings, warning",
    [
        ({"sasl.username": "a"}, "sasl.username does nothing: security.protocol is PLAINTEXT"),
        ({"ssl.ca.location": "/ca"}, "ssl.ca.location does nothing"),
        (over_tls(enable_ssl_certificate_verification="false"), "not checked"),
        (over_tls(ssl_endpoint_identification_algorithm=""), "name is not checked"),
        (
            over_sasl("PLAIN", sasl_username="a", sasl_password="b") | {"security.protocol": "SASL_PLAINTEXT"},
            "in clear",
        ),
    ],
)
def test_what_is_unsafe_is_told(settings: dict[str, str], warning: str) -> None:
    (told,) = parse_client_settings(settings).warnings
    assert warning in told


SECRETS = {
    "sasl.password": "marked-1",
    "ssl.key.password": "marked-2",
    "ssl.keystore.password": "marked-3",
    "ssl.truststore.password": "marked-4",
    "ssl.keystore.key": "marked-5",
    "ssl.keystore.certificate.chain": "cert",
    "ssl.truststore.location": "/x",
}


def test_a_description_shows_no_secret_and_survives_a_journey() -> None:
    found = parse_client_settings(over_sasl("PLAIN", sasl_username="a") | SECRETS)
    assert "marked" not in f"{found!r} {found} {found.security.login!r}"
    assert "[hidden]" in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


@for_each("name", sorted(SECRET_SETTINGS))
def test_no_message_shows_a_secret(name: str) -> None:
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", name: "marked = marked"}
    try:
        told = repr(parse_client_settings(settings))
    except UsageError as error:
        told = f"{error.message} {error.hint}"
    assert "marked" not in told


# --- JAAS


@for_each(
    "text, options",
    [
        ("m required;", {}),
        ('m required a="b c" d=e;', {"a": "b c", "d": "e"}),
        ("m required a='b\"c' ;", {"a": 'b"c'}),
        (r'm required a="q\"u\\o\tt\101e";', {"a": 'q"u\\o\ttAe'}),
        ('m REQUIRED\n  a = "x=y;z"\n // nothing\n /* b=c */ d="";\n', {"a": "x=y;z", "d": ""}),
        ('m required password="${env:X}";', {"password": "${env:X}"}),
    ],
)
def test_login_modules(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text).options == options


@for_each(
    "text",
    [
        "",
        "m",
        "m required",
        "m maybe a=b;",
        "m required a=b",
        "m required a=;",
        "m required a;",
        "m required =b;",
        'm required a="b;',
        "m required a=b; n required c=d;",
    ],
)
def test_what_is_no_login_module(text: str) -> None:
    with pytest.raises(UsageError, match=r"sasl\.jaas\.config"):
        parse_jaas(text)


@given(st.text("ab\"'\\=; \n/*", max_size=40))
def test_any_text_is_a_login_module_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        parse_jaas(f"m required {text}")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_quoted_password_comes_back(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'm required password="{quoted}";').options == {"password": password}


@for_each("text", ['m required password="a"marked=b;', 'm required password="a" marked=;', "m required marked"])
def test_no_message_about_a_login_module_shows_a_piece_of_a_password(text: str) -> None:
    """It comes to stand where a name should, if a quotation mark in it has no backslash before it."""
    with pytest.raises(UsageError, match=r"sasl\.jaas\.config: ") as raised:
        parse_client_settings(over_sasl("PLAIN", sasl_jaas_config=text.replace("m", PLAIN, 1)))
    assert "marked" not in f"{raised.value.message} {raised.value.hint}"


def test_a_login_module_in_the_form_of_its_file() -> None:
    with pytest.raises(UsageError, match="expected LOGIN_MODULE") as raised:
        parse_jaas('KafkaClient { m required username="a" password="b"; };')
    assert "not the braces" in str(raised.value.hint)
