from __future__ import annotations

from pathlib import Path

import pytest

from core.common.errors import AccessError, UsageError
from core.common.properties_file import parse_properties, read_properties
from tests.support.for_each import for_each

TEXT = r"""
# a comment
! another
node.id=1
log.dirs : /tmp/a b
key with\ space
empty=
path=C\:\\kafka
joined=one,\
       two
unicode=\u00fc
twice=1
twice=2
"""


def test_the_text_of_java_properties() -> None:
    assert parse_properties(TEXT) == {
        "node.id": "1",
        "log.dirs": "/tmp/a b",
        "key": "with space",
        "empty": "",
        "path": "C:\\kafka",
        "joined": "one,two",
        "unicode": "ü",
        "twice": "2",
    }


def test_a_character_of_two_escapes() -> None:
    """Java's chars are of 16 bits; one without its other half is no character."""
    assert parse_properties(r"path=/\ud834\udd1e/\u00fc") == {"path": "/\U0001d11e/ü"}
    assert parse_properties(r"path=\ud834\u00fc") == {"path": "\ufffdü"}


def test_a_comment_ends_with_its_line() -> None:
    """Whatever it ends with: the next line is not of it (java.util.Properties.load)."""
    assert parse_properties("# log in C:\\\nsecurity.protocol=SSL\n") == {"security.protocol": "SSL"}
    assert parse_properties("a=b\\\\\nc=d\\\n# no comment\n") == {"a": "b\\", "c": "d# no comment"}


def test_a_file_is_read_in_utf8_or_as_java_does(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"\xef\xbb\xbfsuper.users=User:zo\xc3\xab\n")
    assert read_properties(path) == {"super.users": "User:zoë"}
    path.write_bytes(b"# gr\xfc\xdfe\nsuper.users=User:zo\xeb\n")
    assert read_properties(path) == {"super.users": "User:zoë"}
    path.write_bytes(b"a\0b")
    with pytest.raises(UsageError, match="is no file of settings"):
        read_properties(path)
    with pytest.raises(AccessError, match=r"could not read .*: is a directory"):
        read_properties(tmp_path)


@for_each(
    "text, what",
    [
        (r"log.dirs=C:\users\kafka", r"a \u without four hexadecimal digits"),
        (r"log.dirs=/data\u12", r"a \u without four hexadecimal digits"),
        (r"log.dirs=\\\u00g0", r"a \u without four hexadecimal digits"),
        (r"log.dirs=/a\u0000b", "a null byte"),
    ],
)
def test_escapes_that_are_none_are_named(tmp_path: Path, text: str, what: str) -> None:
    """As java.util.Properties refuses them; the value, which may be a secret, is not told."""
    path = tmp_path / "server.properties"
    path.write_text(f"broker.id=1\n{text}\n")
    with pytest.raises(UsageError) as refusal:
        read_properties(path)
    assert refusal.value.message == f"{path}: log.dirs has {what}"
    path.write_text(r"log.dirs=C:\\users\\kafka\\\\u1")
    assert read_properties(path) == {"log.dirs": r"C:\users\kafka\\u1"}
