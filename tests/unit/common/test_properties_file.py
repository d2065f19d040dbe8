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
