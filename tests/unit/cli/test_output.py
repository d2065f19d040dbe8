"""How a listing is laid out, by widths that are counted here."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cli.output import fields, lay_out
from cli.terminal import fill, text_width, wrapped

ROWS = [
    {"name": "注文", "count": 7, "ids": [1, 22, 333], "why": "a reason of several words", "rack": None},
    {"name": "b", "count": 1234567, "ids": [], "why": "short", "rack": None},
]
NAMES = ["name", "count", "ids", "why", "rack"]


def test_a_pipe_has_whole_rows() -> None:
    assert lay_out(ROWS, NAMES, None, []).lines == [
        "name    count  ids       why                        rack",
        "注文        7  1,22,333  a reason of several words",
        "b     1234567            short",
    ]


def test_texts_go_on_in_their_cell_then_columns_go_then_there_are_blocks() -> None:
    wide = lay_out(ROWS, NAMES, 55, ["ids"])
    assert (wide.lines[1:3], wide.dropped) == (
        ["注文        7  1,22,333  a reason of several", "                         words"],
        [],
    )
    narrow = lay_out(ROWS, NAMES, 46, ["ids"])
    assert (narrow.lines[0], narrow.dropped) == ("name    count  why", ["rack", "ids"])
    blocks = lay_out(ROWS, NAMES, 31, ["ids"])
    assert not blocks.has_header
    assert blocks.lines == [
        "name:  注文", "count: 7", "ids:   1,22,333", "why:   a reason of several", "       words", "",
        "name:  b", "count: 1234567", "why:   short",
    ]  # fmt: skip


def test_times_and_control_characters() -> None:
    row = {"last_timestamp": 1_700_000_000_000, "timestamp": -1, "key": "a\nb\x1b\u202e\x9b"}
    assert lay_out([row], list(row), None, []).lines[1] == (
        "2023-11-14T22:13:20.000Z         -1  a\\nb\\x1b\\u202e\\x9b"
    )


def test_a_value_wider_than_the_terminal_is_not_broken() -> None:
    assert list(fields([("topic", "t" * 50), ("key", "v")], 40)) == ["topic:", "t" * 50, "key:   v"]


words = st.text(st.sampled_from("az09é注文한🙂ﾊ-."), min_size=1, max_size=12)


@given(pieces=st.lists(words, max_size=12), width=st.integers(1, 40))
def test_lines_hold_all_pieces_whole_and_fit(pieces: list[str], width: int) -> None:
    lines = fill(pieces, " ", width, indent="  ")
    assert " ".join(lines).split() == pieces
    for line in lines:
        assert text_width(line) <= width or len(line.split()) == 1


@given(text=st.lists(words, max_size=12).map(" ".join), width=st.integers(14, 60))
def test_wrapped_text_is_the_text(text: str, width: int) -> None:
    assert wrapped(text, width).split() == text.split()
    assert wrapped(text, None) == text


@given(text=st.text(st.sampled_from("aé注🙂한e\u0301\u200b")))
def test_widths_are_those_of_another_table(text: str) -> None:
    assert text_width(text) == cell_len(text)
