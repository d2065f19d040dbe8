from __future__ import annotations

from core.common.printable import printable


def test_what_drives_a_terminal_is_written_out() -> None:
    assert printable("ü 文 ok\nnext line") == "ü 文 ok\nnext line"
    assert printable("\x1b[2J\r\x07\x9b\u202e\udc80") == r"\x1b[2J\r\x07\x9b\u202e\udc80"
