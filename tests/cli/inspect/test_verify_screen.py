"""The screens of verify and of recover's plan: they say what the commands print, and lead to the bytes."""

from __future__ import annotations

import json
import re
import shutil
import threading
from pathlib import Path

import pytest
from textual.pilot import Pilot

from cli.findings_out import finding_text
from cli.inspect.verify_screen import FindingScreen, PlanScreen, VerifyScreen, progress_text
from core.inspector.recover.recovery_plan import step_text
from core.view.files.checking import Checking, CheckProgress, CheckState
from tests.cli.inspect.support import inspecting, note_places, press, screen_text, settled, status, until, with_loop
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.logs import fingerprint
from tests.support.server import call_plog

DAMAGED = SAMPLE_DATA / "damaged"


async def open_verify(pilot: Pilot[None], path: Path) -> VerifyScreen:
    pilot.app.open_verify(path)  # type: ignore[attr-defined]
    await settled(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, VerifyScreen)
    return screen


def squeezed(text: str) -> str:
    """Takes all spaces out: the screen may break a line anywhere."""
    return re.sub(r"\s+", "", text)


def unbroken(text: str) -> str:
    """Joins what the screen has broken into lines."""
    return re.sub(r"\s+", " ", text)


SIZES = [(60, 20), (80, 24), (160, 48)]


@with_loop
async def test_the_findings_are_what_the_command_prints_at_each_size() -> None:
    done = call_plog("verify", str(DAMAGED))
    async with inspecting(DAMAGED) as pilot:
        screen = await open_verify(pilot, DAMAGED)
        assert [finding_text(one) for one in screen.checking.findings] == done.stdout.decode().splitlines()
        assert screen.command_line() == f"plog verify {DAMAGED}"
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await settled(pilot)
            text = screen_text(pilot.app)
            assert squeezed(done.stderr.decode()) in squeezed(text)
            shown = [text.index(code) for code in ("bad-length", "crc-mismatch", "torn-tail")]
            assert shown == sorted(shown)
            assert squeezed("what is wrong: one bit of a batch's length is flipped") in squeezed(text)
            assert max(map(len, text.splitlines())) <= size[0]
        await press(pilot, "d")
        assert screen.command_line() == f"plog verify --deep {DAMAGED}"
        said = call_plog("verify", "--deep", str(DAMAGED)).stderr.decode()
        assert squeezed(said) in squeezed(screen_text(pilot.app))
        await press(pilot, "f")
        shown_finding = pilot.app.screen
        assert isinstance(shown_finding, FindingScreen)
        assert shown_finding.command_line() == "plog help bad-length"
        text = squeezed(screen_text(pilot.app))
        row = json.loads(call_plog("verify", str(DAMAGED), "--output", "ndjson").stdout.splitlines()[0])
        for name, value in row.items():
            assert squeezed(f"{name} {value}") in text
        told = re.findall(r"(?:what is wrong|how to repair it): .*", call_plog("help", "bad-length").stdout.decode())
        assert len(told) == 2
        assert [squeezed(one.replace(":", "", 1).replace("`", "")) in text for one in told] == [True] * 2
        await pilot.resize_terminal(40, 80)  # in which no such line has room
        await settled(pilot)
        text = squeezed(screen_text(pilot.app))
        assert [squeezed(one.replace(":", "", 1).replace("`", "")) in text for one in told] == [True] * 2


@pytest.mark.longer
@with_loop
async def test_the_plan_is_what_recover_prints_and_all_lead_to_their_bytes_and_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = fingerprint(DAMAGED)
    done = call_plog("recover", str(DAMAGED), "--fix-bits")
    without = call_plog("recover", str(DAMAGED))
    async with inspecting(DAMAGED) as pilot:
        screen = await open_verify(pilot, DAMAGED)
        places = note_places(pilot, monkeypatch)
        await press(pilot, "down", "enter", "o")
        assert places[0] == (DAMAGED / "c_bitflip_middle-0" / f"{0:020d}.log", 2707)  # the flipped bit's byte
        assert (str(places[1][0]), places[1][1]) == ("c_bitflip_middle-0", 21)
        assert str(screen.partition) == "c_bitflip_middle-0"
        await press(pilot, "p", "enter", "o")
        assert places[2] == (DAMAGED / "c_bitflip_length-0" / f"{0:020d}.log", 2572)
        assert (str(places[3][0]), places[3][1]) == ("c_bitflip_length-0", 22)
        plan = pilot.app.screen
        assert isinstance(plan, PlanScreen)
        assert "".join(f"{step_text(step)}\n" for step in plan.checking.steps) == done.stdout.decode()
        assert plan.command_line() == f"plog recover {DAMAGED} --fix-bits"
        await press(pilot, "f")
        assert "".join(f"{step_text(step)}\n" for step in plan.checking.steps) == without.stdout.decode()
        assert plan.command_line() == f"plog recover {DAMAGED}"
        await press(pilot, "f")
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await settled(pilot)
            text = squeezed(screen_text(pilot.app))
            assert squeezed("9 steps, 2 records lost") in text
            assert squeezed(step_text(plan.checking.steps[0])) in text
            assert squeezed(f"to carry it out: plog recover {DAMAGED} --fix-bits --apply") in text
    assert fingerprint(DAMAGED) == before


class Held:
    """Holds a check up where it tells of bytes, until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_at_it, self.may_go_on = threading.Event(), threading.Event()
        add_bytes = Checking.add_bytes

        def add(run: Checking, size_bytes: int) -> None:
            add_bytes(run, size_bytes)
            if run.checked_bytes:
                self.is_at_it.set()
                self.may_go_on.wait()

        monkeypatch.setattr(Checking, "add_bytes", add)

    def hold_again(self) -> None:
        self.is_at_it.clear()
        self.may_go_on.clear()


async def open_held(pilot: Pilot[None], held: Held) -> VerifyScreen:
    """Opens the screen, and waits until its check is held up."""
    pilot.app.open_verify(DAMAGED)  # type: ignore[attr-defined]
    await until(pilot, lambda: held.is_at_it.is_set() and isinstance(pilot.app.screen, VerifyScreen))
    screen = pilot.app.screen
    assert isinstance(screen, VerifyScreen)
    return screen


@with_loop
async def test_the_progress_is_shown_and_the_check_stopped_and_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    async with inspecting(DAMAGED) as pilot:
        screen = await open_held(pilot, held)
        screen.show_now()
        await pilot.pause()
        text = unbroken(screen_text(pilot.app))
        assert re.search(r"running: [\d.]+ KB of 13\.0 KB checked, .*/s, [\d.]+ KB left, about", text)
        await pilot.press("x")
        held.may_go_on.set()
        await settled(pilot)
        states = [screen.checking.state]
        assert re.search(r"stopped: .* left.*; r begins again", unbroken(screen_text(pilot.app)))
        await press(pilot, "r")
        assert len(screen.checking.findings) == 3
        assert "3 findings, 13.0 KB of log checked" in unbroken(screen_text(pilot.app))
        held.hold_again()
        await pilot.press("r")
        await until(pilot, held.is_at_it.is_set)
        await pilot.press("question_mark", "escape")  # going on and coming back does not stop it
        states.append(screen.checking.state)
        await pilot.press("escape")
        held.may_go_on.set()
        await settled(pilot)
        states.append(screen.checking.state)
        assert states == [CheckState.STOPPED, CheckState.RUNNING, CheckState.STOPPED]
        await until(pilot, lambda: "inspect-check" not in {one.name for one in threading.enumerate()})


@with_loop
async def test_what_is_missing_or_goes_is_said_and_the_screen_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "a\x1b[31m"
    folder = Path(shutil.copytree(GOLDEN / "c_missing_index.corrupt", root / "c-0"))
    (root / "b\x1b[2J").mkdir()
    async with inspecting(root, size=(200, 24)) as pilot:
        await open_verify(pilot, root)
        text = screen_text(pilot.app)
        assert r"a\x1b[31m" in text  # what would drive the terminal is shown
        assert "\x1b" not in text
        places = note_places(pilot, monkeypatch)
        await press(pilot, "enter")
        assert (places, status(pilot.app)) == ([], f"{'0' * 20}.index is no file that could be shown")
        for name in (".index", ".timeindex"):
            (folder / f"{'0' * 20}{name}").write_bytes(b"")
        await press(pilot, "r")
        assert squeezed("clean, 3.9 KB of log checked") in squeezed(screen_text(pilot.app))
        assert squeezed("nothing is wrong") in squeezed(screen_text(pilot.app))
        await press(pilot, "p")
        text = screen_text(pilot.app)
        assert "nothing to recover" in text
        assert "no plan is made yet" not in text
        await press(pilot, "escape")
        shutil.rmtree(root)
        await press(pilot, "r")
        assert status(pilot.app).startswith("! no such file or directory: /")
        assert "failed: " in screen_text(pilot.app)
        await press(pilot, "p")
        assert status(pilot.app).startswith("! no such file or directory: /")
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, VerifyScreen)


@with_loop
async def test_the_list_of_topics_says_what_was_found() -> None:
    async with inspecting(SAMPLE_DATA / "damaged", size=(80, 24)) as pilot:
        await open_verify(pilot, SAMPLE_DATA / "damaged")
        await press(pilot, "escape", "r")
        text = screen_text(pilot.app)
        assert text.count("1 found by verify") == 3, text


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (CheckProgress(0, 0, 0), "0 B checked"),
        (CheckProgress(3072, 0, 1500), "3.0 KB checked, 2.0 KB/s"),
        (CheckProgress(0, 4096, 0), "0 B of 4.0 KB checked, 4.0 KB left"),
        (CheckProgress(1024, 4096, 1000), "1.0 KB of 4.0 KB checked, 1.0 KB/s, 3.0 KB left, about 3s"),
    ],
)
def test_a_rate_is_shown_once_it_is_known(progress: CheckProgress, text: str) -> None:
    assert progress_text(progress) == text
