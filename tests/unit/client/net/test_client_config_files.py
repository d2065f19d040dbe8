"""Files of settings as people have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.client.net.client_config_files import is_reference, read_settings_file, replace_references
from core.common.errors import UsageError
from core.security.client_security import PasswordLogin
from core.security.client_settings import parse_client_settings
from core.security.secret import Secret
from tests.support.for_each import for_each


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


KAFKAS = r"""
# to the cluster at work
bootstrap.servers = work:9093
security.protocol = SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="alice" \
    password="se\\cret";
ssl.truststore.location = /etc/kafka/trust.p12
ssl.truststore.password = changeit
acks = all
"""

KCATS = r"""
bootstrap.servers=work:9093
security.protocol=sasl_ssl
sasl.mechanisms=SCRAM-SHA-512
sasl.username=alice
sasl.password=se\cret=
# sasl.password=other
ssl.ca.location=/etc/kafka/ca.pem
"""

RPKS = """
version: 6
current_profile: work
profiles:
  - name: home
    kafka_api: {brokers: ["home:9092"]}
  - name: work
    kafka_api:
      brokers: ["work:9093", "work2:9093"]
      tls: {ca_file: /etc/kafka/ca.pem}
      sasl: {user: alice, password: 'se\\cret', mechanism: SCRAM-SHA-512}
    admin_api: {addresses: ["work:9644"]}
"""


@for_each(
    "name, text, password",
    [
        ("client.properties", KAFKAS, "secret"),  # Java takes the backslashes away twice
        ("kcat.conf", KCATS, "se\\cret="),
        ("rpk.yaml", RPKS, "se\\cret"),
    ],
)
def test_each_kind_of_file(tmp_path: Path, name: str, text: str, password: str) -> None:
    settings, warnings = read_settings_file(write(tmp_path / name, text))
    found = parse_client_settings(settings)
    assert (found.bootstrap_servers or "").startswith("work:9093")
    assert found.security.protocol == "SASL_SSL"
    assert found.security.login == PasswordLogin("SCRAM-SHA-512", "alice", Secret(password))
    assert found.security.tls is not None and found.security.tls.trust is not None
    assert warnings == []


@for_each(
    "text, protocol",
    [
        ("kafka_api: {brokers: [a]}", "PLAINTEXT"),
        ("kafka_api: {brokers: [a], tls: {}}", "SSL"),
        ("kafka_api: {brokers: [a], tls: null}", "PLAINTEXT"),
        ("kafka_api: {tls: {enabled: false, ca_file: x}}", "PLAINTEXT"),
        ("kafka_api: {sasl: {user: a, password: b}}", "SASL_PLAINTEXT"),
        ("kafka_api: {tls: {insecure_skip_verify: true}, sasl: {user: a, password: b, mechanism: PLAIN}}", "SASL_SSL"),
        ("kafka_api: {tls: {}, sasl: {password: 'token:a.b.c', mechanism: OAUTHBEARER}}", "SASL_SSL"),
        ("rpk: {kafka_api: {tls: {}}}", "SSL"),
    ],
)
def test_rpks_profiles(tmp_path: Path, text: str, protocol: str) -> None:
    settings, _ = read_settings_file(write(tmp_path / "profile.yml", text))
    assert parse_client_settings(settings).security.protocol == protocol


@for_each("text", ["", "[]", "a: {", "kafka_api: 1", "profiles: []\ncurrent_profile: x", "kafka_api: {tls: {who: 1}}"])
def test_what_is_no_profile(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"profile\.yaml"):
        read_settings_file(write(tmp_path / "profile.yaml", text))


@for_each(
    "text, message, hint",
    [
        ("kafka_api: {broker: [a]}", "kafka_api.broker: plog does not know it", "did you mean brokers?"),
        ("kafka_api: {sasl: {usr: marked}}", "sasl.usr: plog does not know it", "did you mean user?"),
        ("kafka_api: {tls: {cafile: x}}", "tls.cafile: plog does not know it", "did you mean ca_file?"),
        ("kafka_api: {tls: {1: x}}", "tls.1: plog does not know it", None),
    ],
)
def test_a_misspelt_name_in_a_profile(tmp_path: Path, text: str, message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as raised:
        read_settings_file(write(tmp_path / "profile.yaml", text))
    assert raised.value.message.endswith(f"profile.yaml: {message}")
    assert hint in (None, raised.value.hint)


@for_each("mode, is_told", [(0o600, False), (0o640, True), (0o644, True)])
def test_a_secret_that_others_can_read_is_told_of(tmp_path: Path, mode: int, is_told: bool) -> None:
    path = write(tmp_path / "client.properties", KCATS, mode)
    _, warnings = read_settings_file(path)
    assert warnings == ([f"{path} holds a secret, and others can read it: chmod 600 {path}"] if is_told else [])


def test_a_file_without_secrets_may_be_read_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "x")
    text = "sasl.username=a\nsasl.password=${env:PASSWORD}\n"
    settings, warnings = read_settings_file(write(tmp_path / "client.properties", text, 0o644))
    assert settings["sasl.password"] == "x"
    assert warnings == []


def test_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "alice")
    secrets = write(tmp_path / "secrets.properties", "password=p${env:NAME}w\n")
    write(tmp_path / "whole", "all of it\n")
    found = replace_references(
        {
            "a": "${env:NAME}",
            "b": f'm required username="${{env:NAME}}" password="${{file:{secrets}:password}}";',
            "c": f"${{directory:{tmp_path}:whole}}",
            "d": "${vault:x:y} $ {env:NAME}",
        },
        "here",
    )
    assert found == {
        "a": "alice",
        "b": 'm required username="alice" password="p${env:NAME}w";',
        "c": "all of it",
        "d": "${vault:x:y} $ {env:NAME}",
    }


@for_each(
    "name, value",
    [
        ("sasl.password", "${vault:secret/kafka:password}"),
        ("sasl.password", "${ENV:PASSWORD}"),
        ("sasl.password", "before${aws:x}after"),
        ("sasl.password", "${securepass::marked}"),
        ("sasl.password", "${mar ked:x}"),
        ("bootstrap.servers", "${vault:kafka:servers}"),
        ("ssl.key.location", "${vault:kafka:key}"),
        ("sasl.jaas.config", 'a.PlainLoginModule required username="a" password="${vault:a:marked}";'),
        ("schema.registry.basic.auth.user.info", "${vault:a:b}"),
        ("config.providers.file.class", "com.example.VaultConfigProvider"),
        ("config.providers.env.class", "org.apache.kafka.common.config.provider.FileConfigProvider"),
    ],
)
def test_a_config_provider_that_plog_does_not_have(tmp_path: Path, name: str, value: str) -> None:
    """Taken as it stands, it would be sent as a password."""
    with pytest.raises(UsageError, match="config provider") as raised:
        read_settings_file(write(tmp_path / "client.properties", f"{name}={value}\n"))
    assert name in raised.value.message
    assert "mar" not in f"{raised.value.message} {raised.value.hint}"
    with pytest.raises(UsageError, match="config provider"):
        replace_references({name: value}, "-X")


def test_config_providers_of_what_plog_passes_over(tmp_path: Path) -> None:
    text = (
        "client.id=${vault:a:b}\nconfig.providers=file,vault\nconfig.providers.vault.class=com.example.Vault\n"
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
    )
    assert read_settings_file(write(tmp_path / "client.properties", text))[0]["client.id"] == "${vault:a:b}"


@for_each(
    "value",
    ["${env:PLOG_NO_SUCH}", "${file:/no/such:key}", "${file:/no/such}", "${directory:/tmp:../x}", "${directory:/no:x}"],
)
def test_references_that_lead_nowhere(value: str) -> None:
    with pytest.raises(UsageError, match=r"here: sasl\.password") as raised:
        replace_references({"sasl.password": value}, "here")
    assert value in raised.value.message


@for_each(
    "value, is_one",
    [
        ("${env:X}", True),
        ("x${env:X}", False),
        ("secret", False),
        ('m required username="a" password="${env:X}";', True),
        ('m required username="${env:X}" password="secret";', False),
        ("m required username=a password=${file:/x:y};", True),
    ],
)
def test_what_is_taken_from_elsewhere(value: str, is_one: bool) -> None:
    assert is_reference(value) is is_one


@for_each("content", [b"\xff\xfe", b"x" * (1 << 21), b"a=\xe4\x00", "a=b".encode("utf-16")])
def test_a_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(UsageError, match="no file of settings"):
        read_settings_file(tmp_path / "f")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"could not read .*no such file"):
        read_settings_file(tmp_path / "f")


@for_each("text", [KAFKAS, KCATS])
def test_files_of_windows(tmp_path: Path, text: str) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"\xef\xbb\xbf" + text.lstrip().replace("\n", "\r\n").encode())
    other = write(tmp_path / "other.properties", text)
    assert read_settings_file(path)[0] == read_settings_file(other)[0]


def test_a_file_in_latin_1_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes("sasl.username=Jürgen\nsasl.password=Grüße\n".encode("latin-1"))
    assert read_settings_file(path)[0] == {"sasl.username": "Jürgen", "sasl.password": "Grüße"}


@for_each("text", ["", "# nothing\n\n"])
def test_a_file_that_says_nothing_is_told_of(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "client.properties", text)
    assert read_settings_file(path) == ({}, [f"{path} holds no setting"])


@for_each("character", ["\u00a0", "\u2028", "\x85", "\x0c", "\x1d"])
def test_only_javas_spaces_and_ends_of_lines_are_ones(tmp_path: Path, character: str) -> None:
    """A password may hold any other."""
    for name, other in (("client.properties", ""), ("kcat.conf", "ssl.ca.location=ca.pem\n")):
        key = "sasl.password" if other else "ssl.key.password"
        text = f"{other}{key}={character}x{character}y\nacks=all\n" if character != "\x0c" else f"{other}{key}=x\x0cy\n"
        settings, _ = read_settings_file(write(tmp_path / name, text))
        assert settings[key] == (f"{character}x{character}y" if character != "\x0c" else "x\x0cy")


def test_a_line_of_librdkafkas_that_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "kcat.conf", "ssl.ca.location=/ca.pem\n\nsecurity.protocol: SSL marked\n")
    with pytest.raises(UsageError, match=r"kcat\.conf: line 3: expected KEY=VALUE") as raised:
        read_settings_file(path)
    assert "marked" not in raised.value.message


def test_a_profile_of_rpk_by_any_name(tmp_path: Path) -> None:
    settings, _ = read_settings_file(write(tmp_path / "profile", "name: prod\n" + RPKS.replace("version: 6\n", "")))
    assert settings["bootstrap.servers"] == "work:9093,work2:9093"


def test_a_name_that_is_none_is_told_with_its_file(tmp_path: Path) -> None:
    path = write(tmp_path / "client.properties", "sasl.usrname=alice\n")
    with pytest.raises(UsageError, match=r"client\.properties: 'sasl\.usrname' is no setting") as raised:
        read_settings_file(path)
    assert raised.value.hint == "did you mean sasl.username?"


def test_a_key_over_several_lines_is_not_shown(tmp_path: Path) -> None:
    """Whoever pastes a key forgets the backslashes."""
    line = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgmarkedmarkedmark"
    text = f"ssl.keystore.key=-----BEGIN PRIVATE KEY-----\n{line}\n{line[::-1]}\n-----END PRIVATE KEY-----\n"
    with pytest.raises(UsageError, match="is no setting of Kafka's clients") as raised:
        read_settings_file(write(tmp_path / "client.properties", text))
    assert line not in f"{raised.value.message} {raised.value.hint}"
    assert "backslash at the end of each" in str(raised.value.hint)
    joined = text.replace("\n", "\\\n").rstrip("\\\n") + "\n"
    settings, _ = read_settings_file(write(tmp_path / "client.properties", joined))
    assert settings["ssl.keystore.key"] == text.partition("=")[2].replace("\n", "")


@for_each("password, is_told", [("simple=;'", False), ('a"b', True), ("a\\b", True)])
def test_a_reference_in_a_login_module_that_it_would_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str, is_told: bool
) -> None:
    """Kafka puts the value there and then reads the line, and so do we."""
    monkeypatch.setenv("PASSWORD", password)
    text = 'sasl.jaas.config=m required username="a" password="${env:PASSWORD}";\n'
    _, warnings = read_settings_file(write(tmp_path / "client.properties", text))
    assert ["${env:PASSWORD} has a quotation mark or a backslash" in warning for warning in warnings] == [
        True
    ] * is_told
    assert password not in " ".join(warnings)


@for_each(
    "value, words",
    [
        ("${PASSWORD}", "looks like a reference, and is taken as it stands: expected ${env:NAME}"),
        ("$PASSWORD", "looks like a reference"),
        ("${env:PASSWORD", "looks like a reference"),
        ("'marked'", "stands in quotation marks"),
        ("marked # of alice", "a comment needs a line of its own"),
        ("$1marked$", ""),
        ("mar#ked", ""),
        ("marked'", ""),
        ('"', ""),
    ],
)
def test_a_secret_that_is_probably_meant_otherwise_is_told_of(tmp_path: Path, value: str, words: str) -> None:
    settings, warnings = read_settings_file(write(tmp_path / "f", f"sasl.username=a\nsasl.password={value}\n"))
    assert settings["sasl.password"] == value
    assert (words in warnings[0]) if words else not warnings
    assert "marked" not in " ".join(warnings)


@for_each("reference", ["${file:FOLDER/secret:pw}", "${directory:FOLDER:secret}"])
def test_a_file_with_a_secret_that_is_referred_to_is_told_of_too(tmp_path: Path, reference: str) -> None:
    secret = write(tmp_path / "secret", "pw=x\n", 0o644)
    text = f"sasl.username=a\nsasl.password={reference.replace('FOLDER', str(tmp_path))}\n"
    path = write(tmp_path / "client.properties", text, 0o644)
    assert read_settings_file(path)[1] == [f"{secret} holds a secret, and others can read it: chmod 600 {secret}"]
    secret.chmod(0o600)
    assert read_settings_file(path)[1] == []
