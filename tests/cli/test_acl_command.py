"""`plog acl` on a directory that nobody serves, on Kafka's, and on a broker without an authorizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from core.cluster.image.metadata_log import MetadataLog
from core.cluster.image.metadata_record import MetadataRecord
from core.common.filesystem import FileSystem
from core.protocol.schema.metadata_records import AccessControlEntryRecord, UserScramCredentialRecord
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.logs import NOW, fingerprint
from tests.support.manual_clock import ManualClock
from tests.support.server import call_plog

BY_KAFKA = ["--data-dir", str(GOLDEN.parent / "secured")]
"""What a Kafka 4.3.1 left: ACLs of `User:Topic_Read` and others, each for one operation."""

KAFKAS_LIST = """\
Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`: 
 \t(principal=User:CN=alice,OU=a b, host=*, operation=READ, permissionType=ALLOW) 

"""  # noqa: W291


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ACLs: two of alice's, and one that denies."""
    directory = tmp_path_factory.mktemp("acls") / "data"
    place = ["--data-dir", str(directory)]
    ok("topic", "create", "orders", *place)
    ok("acl", "add", "--allow-principal", "User:alice", "--operation", "Read", "--operation", "Write",
       "--topic", "orders", *place)  # fmt: skip
    ok("acl", "add", "--deny-principal", "User:*", "--deny-host", "10.0.0.9", "--topic", "ord",
       "--resource-pattern-type", "prefixed", *place)  # fmt: skip
    return directory


@pytest.fixture
def where(prepared: Path, tmp_path: Path) -> list[str]:
    """A copy of it, of the test's own."""
    shutil.copytree(prepared, tmp_path / "data")
    return ["--data-dir", str(tmp_path / "data")]


def rows(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ok(*arguments, "--output", "ndjson").splitlines()]


def exported(where: list[str]) -> list[str]:
    return ok("acl", "export", *where).decode().splitlines()


def test_a_name_finds_that_name_and_a_note_says_what_else_applies(where: list[str]) -> None:
    done = call_plog("acl", "list", "--topic", "orders", *where)
    assert len(done.stdout.splitlines()) == 1 + 2
    assert b"note: 1 ACL more by a prefix or by *: --resource-pattern-type match" in done.stderr
    assert len(rows("acl", "list", "--topic", "orders", "--resource-pattern-type", "match", *where)) == 3
    assert [row["operation"] for row in rows("acl", "list", "--operation", "write", *where)] == ["WRITE"]
    assert b"no such ACL" in call_plog("acl", "list", "--principal", "User:eve", *where).stderr


def test_what_is_there_is_not_added_again(where: list[str]) -> None:
    found = rows(
        "acl", "add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "g", *where
    )
    assert [(row["change"], row["operation"], row["resource_type"]) for row in found] == [
        ("add", "DESCRIBE", "TOPIC"), ("add", "READ", "GROUP"), ("there already", "READ", "TOPIC")
    ]  # fmt: skip
    assert len(exported(where)) == 5


def test_remove_shows_and_asks_and_a_dry_run_changes_nothing(where: list[str]) -> None:
    before = exported(where)
    line = ["acl", "remove", "--principal", "User:alice", "--topic", "orders", *where]
    done = call_plog(*line)
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1 + 2  # operations that were not named, too
    assert b"2 ACLs in " in done.stderr
    assert b"--yes confirms it" in done.stderr
    assert b"2 would be removed" in call_plog(*line, "--dry-run").stderr
    assert exported(where) == before
    ok(*line, "--yes")
    assert len(exported(where)) == 1


def test_a_star_is_the_acl_for_all_names_and_no_pattern(where: list[str]) -> None:
    done = call_plog("acl", "remove", "--topic", "*", "--yes", *where)
    assert b"nothing to do" in done.stderr
    assert len(exported(where)) == 3


def test_an_export_is_an_import(where: list[str], tmp_path: Path) -> None:
    lines = exported(where)
    other = ["--data-dir", str(tmp_path / "other")]
    shutil.copytree(where[1], other[1])
    ok("acl", "remove", "--resource-pattern-type", "match", "--topic", "orders", "--yes", *other)
    assert exported(other) == []
    ok("acl", "import", "-", *other, stdin="\n".join(lines[::-1]).encode())
    assert exported(other) == lines
    done = call_plog("acl", "import", "-", *where, stdin=KAFKAS_LIST.encode())
    assert b"1 added" in done.stderr
    assert len(exported(where)) == 4
    line = ["acl", "import", "-", "--remove-others", *where]
    assert b"3 would be removed, 1 there already" in call_plog(*line, "--dry-run", stdin=KAFKAS_LIST.encode()).stderr
    assert call_plog(*line, stdin=KAFKAS_LIST.encode()).returncode == 2  # nobody confirms it
    assert len(exported(where)) == 4
    ok(*line, "--yes", stdin=KAFKAS_LIST.encode())
    assert [json.loads(one)["principal"] for one in exported(where)] == ["User:CN=alice,OU=a b"]


def test_a_file_of_another_editor_and_an_empty_one(where: list[str]) -> None:
    lines = exported(where)
    ok("acl", "import", "-", *where, stdin=b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    for mark in (b"", b"\xef\xbb\xbf\r\n"):
        done = call_plog("acl", "import", "-", "--remove-others", "--yes", *where, stdin=mark)
        assert (done.returncode, b"is empty: --remove-others would remove all ACLs" in done.stderr) == (2, True)
    assert exported(where) == lines
    ok("acl", "import", "-", "--remove-others", "--yes", *where, stdin=b"# nobody")
    assert exported(where) == []


def test_a_refused_denial_lets_nobody_in(where: list[str]) -> None:
    """Of one request, a broker keeps what is sound."""
    before = exported(where)
    allowing = json.loads(before[0])
    denying = {**allowing, "permission_type": "DENY", "host": "10.0.0.0/99"}
    text = f"{json.dumps({**allowing, 'principal': 'User:*'})}\n{json.dumps(denying)}"
    done = call_plog("acl", "import", "-", *where, stdin=text.encode())
    assert (done.returncode, b"Invalid CIDR notation" in done.stderr) == (1, True)
    assert exported(where) == before


def write_records(where: list[str], *records: MetadataRecord) -> None:
    log = MetadataLog(Path(where[1]), 1, ManualClock(NOW), FileSystem())
    log.append(records)
    log.close()


def test_acls_of_a_later_kafka_stay(where: list[str]) -> None:
    """No filter names one of them alone: UNKNOWN is refused, ANY and MATCH would take others with them."""
    parts: dict[str, Any] = {"resource_type": 2, "pattern_type": 3, "operation": 3, "permission_type": 3}
    parts |= {"resource_name": "t", "principal": "User:odd", "host": "*"}
    odd = [{"resource_type": 99}, {"pattern_type": 2}, {"operation": 99}, {"operation": 1}, {"permission_type": 1}]
    changed = [{**parts, **change, "id": bytes([n] * 16)} for n, change in enumerate([*odd, {"operation": 4}])]
    write_records(where, *(AccessControlEntryRecord(**fields) for fields in changed))
    done = call_plog("acl", "remove", "--principal", "User:odd", "--yes", *where)
    assert (done.returncode, b"1 removed" in done.stderr) == (0, True)
    assert b"warning: 5 ACLs of a later Kafka, with values that plog does not know: left as they are" in done.stderr
    assert len(rows("acl", "list", "--principal", "User:odd", *where)) == 5


def test_a_user_of_a_later_kafka_is_refused(where: list[str]) -> None:
    write_records(where, UserScramCredentialRecord("odd", 3, b"s", b"k" * 64, b"k" * 64, 4096))
    assert b"odd   3                4096" in ok("user", "list", *where)
    done = call_plog("user", "delete", "odd", "--yes", *where)
    assert (done.returncode, b"Unknown SCRAM mechanism" in done.stderr) == (1, True)


def explained(*arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    done = call_plog("acl", "explain", *arguments, "--output", "json")
    return done.returncode, json.loads(done.stdout or "[]"), done.stderr.decode()


def test_explain(where: list[str]) -> None:
    question = ["--principal", "User:alice", "--topic", "orders", *where, "--operation"]
    code, found, said = explained(*question, "describe")
    assert (code, found[0]["why"], found[0]["operation"]) == (0, "decides", "WRITE")
    assert said.startswith("allowed: DESCRIBE on topic orders to User:alice from any host in ")
    assert ": an ACL decides\n" in said
    code, found, said = explained(*question, "Read", "--host", "10.0.0.9")
    assert (code, found[0]["permission_type"], found[0]["pattern_type"]) == (1, "DENY", "PREFIXED")
    assert (
        "hint: plog acl remove --deny-principal 'User:*' --deny-host 10.0.0.9 --operation ALL --topic ord "
        f"--resource-pattern-type prefixed --data-dir {where[1]}"
    ) in said
    code, found, said = explained(*question, "Delete")
    assert (code, found[0]["why"]) == (1, "decides: DefaultDeny")
    assert ": no ACL allows it\n" in said
    assert "hint: plog acl add --allow-principal User:alice --operation DELETE --topic orders --data-dir" in said


def test_explain_says_what_a_directory_does_not_tell(where: list[str], tmp_path: Path) -> None:
    question = ["--principal", "User:root", "--operation", "Read", "--topic", "orders", *where]
    code, _, said = explained(*question)
    assert code == 1
    assert "not known, and it may allow it: authorizer.class.name, super.users" in said
    config = tmp_path / "server.properties"
    config.write_text("super.users=User:CN=x,O=y;User:root\n")
    code, found, said = explained(*question, "--config", str(config))
    assert (code, found[0]["why"]) == (0, "decides: SuperUser")
    config.write_text("allow.everyone.if.no.acl.found=true\n")
    code, found, said = explained(*question, "--config", str(config))
    assert code == 1  # there is one, of somebody
    assert "not known" not in said
    assert "note: authorizer.class.name is not set" in said
    code, found, said = explained(*question[:5], "other", *where, "--config", str(config))
    assert (code, found[0]["why"]) == (0, "decides: DefaultAllow")


def test_a_directory_of_kafkas_is_read_as_it_is() -> None:
    before = fingerprint(Path(BY_KAFKA[1]))
    found = rows("acl", "list", "--principal", "User:Topic_Read", *BY_KAFKA)
    assert [(row["operation"], row["resource_name"]) for row in found] == [("READ", "*")]
    assert explained("--principal", "User:Topic_Read", "--operation", "Describe", "--topic", "t", *BY_KAFKA)[0] == 0
    assert explained("--principal", "User:Topic_Read", "--operation", "Write", "--topic", "t", *BY_KAFKA)[0] == 1
    assert fingerprint(Path(BY_KAFKA[1])) == before


def test_without_an_authorizer(shared_server: Any) -> None:
    where = ["--bootstrap-server", shared_server.address]
    done = call_plog("acl", "list", *where)
    assert done.returncode == 1
    assert b"hint: the broker has no authorizer" in done.stderr
    code, _, said = explained("--principal", "User:a", "--operation", "Read", "--topic", "t", *where)
    assert code == 0
    assert "no authorizer is at work" in said


def test_the_owner_learns_that_an_open_broker_obeys_no_acl(shared_server: Any) -> None:
    owner = ["--data-dir", str(shared_server.data_dir)]
    done = call_plog("acl", "add", "--deny-principal", "User:*", "--topic", "t", *owner)
    assert b"warning: the broker has no authorizer, and obeys ACLs only after a restart" in done.stderr
    code, _, said = explained("--principal", "User:a", "--operation", "Read", "--topic", "t", *owner)
    assert (code, "no authorizer is at work" in said) == (0, True)
    ok("acl", "remove", "--topic", "t", "--yes", *owner)


@for_each(
    "arguments, code, message",
    [
        (["acl", "add", "--topic", "t"], 2, "no principal is named"),
        (["acl", "add", "--allow-principal", "alice", "--topic", "t"], 2, "'alice' is no principal"),
        (["acl", "add", "--allow-principal", "User:a", "--topic", "t*"], 2, "--resource-pattern-type prefixed?"),
        (["acl", "remove"], 2, "nothing says which ACLs to remove"),
        (["acl", "remove", "--resource-pattern-type", "any", "--yes"], 2, "nothing says which ACLs to remove"),
        (["acl", "import", "/nowhere"], 3, "could not read /nowhere"),
        (["acl", "import", "/dev/null", "--dry-run"], 0, "nothing to do"),
        (["acl", "explain", "--principal", "User:a", "--operation", "Read"], 2, "expected one resource"),
        (["acl", "explain", "--principal", "User:a", "--operation", "Read", "--topic", "a", "--topic", "b"], 2,
         "expected one resource"),
        (["acl", "explain", "--principal", "User:a", "--operation", "Reed", "--cluster"], 2, "did you mean READ?"),
        (["acl", "explain", "--principal", "User:a", "--operation", "Write", "--group", "g"], 2, "no operation WRITE"),
        (["acl", "explain", "--principal", "User:a", "--operation", "All", "--topic", "t"], 2, "no operation ALL"),
        (["acl", "explain", "--principal", "User:a", "--operation", "Read", "--topic", "t", "--config", "/nowhere"], 3,
         "could not read /nowhere"),
        (["acl", "explain", "--principal", "User:a", "--operation", "Alter", "--cluster", "--config",
          "/proc/self/auxv"], 2, "is no file of settings"),
        (["acl", "explain", "--principal", "User:a", "--operation", "Read", "--topic", ""], 2, "an empty name"),
        (["acl", "explain", "--principal", "User:a", "--operation", "Read", "--topic", "t", "--host", "localhost"], 2,
         "host 'localhost' is no IP address"),
        (["acl", "explain", "--principal", "User:a", "--operation", "Read", "--topic", "t", "--host", "10.0.0.0/8"], 2,
         "host '10.0.0.0/8' is no IP address"),
    ],
)  # fmt: skip
def test_wrong_words(arguments: list[str], code: int, message: str, prepared: Path) -> None:
    place = ["--data-dir", str(prepared)]
    done = call_plog(*arguments, *place)
    assert (done.returncode, message in done.stderr.decode()) == (code, True), done.stderr.decode()


def test_the_first_acls_make_the_directory_and_a_dry_run_does_not(tmp_path: Path) -> None:
    """The examples of docs/acls.md, typed where no broker has run yet."""
    line = ["acl", "add", "--allow-principal", "User:alice", "--producer", "--topic", "orders"]
    for change in (line, ["acl", "import", "-"]):
        where = ["--data-dir", str(tmp_path / change[1])]
        done = call_plog(*change, "--dry-run", *where, stdin=KAFKAS_LIST.encode())
        assert (done.returncode, b"would be added" in done.stderr) == (0, True), done.stderr
        assert list(tmp_path.glob(change[1])) == []
        assert call_plog(*change, *where, stdin=KAFKAS_LIST.encode()).returncode == 0
        assert len(exported(where)) == (3 if change is line else 1)
    typo = ["--data-dir", str(tmp_path / "typo")]
    assert call_plog("acl", "remove", "--principal", "User:alice", "--yes", *typo).returncode == 3
    assert not (tmp_path / "typo").exists()


def test_a_directory_without_a_metadata_log(tmp_path: Path) -> None:
    assert b"there is no data directory" in call_plog("acl", "list", "--data-dir", str(tmp_path / "none")).stderr
    done = call_plog("acl", "list", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert b"has no metadata log: ACLs and users are in ZooKeeper" in done.stderr


def test_explain_has_the_rules_of_the_authorizer(where: list[str], tmp_path: Path) -> None:
    """Ranges of hosts are of StandardAuthorizer alone. Both compare an IPv6 address as Java writes it."""
    config = tmp_path / "server.properties"
    question = ["--principal", "User:bob", "--operation", "Read", "--topic", "t", *where, "--config", str(config)]
    ok("acl", "add", "--allow-principal", "User:bob", "--allow-host", "10.0.0.0/8", "--topic", "t", *where)
    classes = {
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer": 0,
        "kafka.security.authorizer.AclAuthorizer": 1,
    }
    for name, code in classes.items():
        config.write_text(f"authorizer.class.name={name}\n")
        assert explained(*question, "--host", "10.1.2.3")[0] == code
        denied, _, said = explained(*question, "--host", "::1")
        assert denied == 1
        assert "hint: plog acl add --allow-principal User:bob --allow-host 0:0:0:0:0:0:0:1 --operation READ" in said
    ok("acl", "add", "--allow-principal", "User:bob", "--allow-host", "0:0:0:0:0:0:0:1", "--topic", "t", *where)
    assert explained(*question, "--host", "::1")[0] == 0
