from __future__ import annotations

from core.common.properties_file import parse_properties

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
