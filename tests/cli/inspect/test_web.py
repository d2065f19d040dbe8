"""`plog inspect --web` without a browser: who gets in, what is served, and how its processes end."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from cli.inspect import web
from cli.inspect.web import LONGEST_MESSAGE, MOST_SESSIONS, MOST_STRANGERS, InspectServer, is_for_server, serve_inspect
from core.common.endpoint import Endpoint
from core.common.errors import AccessError, UsageError
from tests.cli.inspect.support import with_loop
from tests.cli.inspect.web_visit import PACKET_APP, ROOT, gone, serving, started, stranger
from tests.support.processes import children_of, is_running
from tests.support.server import PLOG

LOG = ROOT / "sample-data" / "partition" / "txn_multisegment-0"
PATHS = ("/", "/ws", "/static/js/textual.js", "/page/page.js", "/favicon.ico", "/static/none", "/none")


@with_loop
async def test_the_token_lets_in_the_first_browser_and_no_second() -> None:
    async with serving(enters=False) as visit, stranger() as second:
        async with visit.browser.get(visit.first_address) as answer:
            assert answer.status == 200
            assert 'content="0; url=/"' in await answer.text()
        async with second.get(visit.first_address) as answer:
            assert answer.status == 403
            assert "works once" in await answer.text()
        assert await visit.status("/") == 200
        assert await visit.status("/?token=none") == 200  # the cookie is enough


@with_loop
async def test_the_cookie_is_for_this_server_alone_and_no_script_reads_it() -> None:
    async with serving(enters=False) as visit, visit.browser.get(visit.first_address) as answer:
        (cookie,) = answer.cookies.values()
        assert cookie.key == f"plog-inspect-{visit.port}"
        assert cookie["httponly"]
        assert (cookie["samesite"], cookie["path"], cookie["max-age"]) == ("Strict", "/", "")
        assert cookie.value not in visit.first_address


@with_loop
async def test_without_the_cookie_nothing_is_served() -> None:
    async with serving() as visit, stranger() as outsider:
        wrong = {"Cookie": f"plog-inspect-{visit.port}=" + "x" * 43}
        for path in PATHS:
            for headers in ({}, wrong):
                async with outsider.get(visit.address.rstrip("/") + path, headers=headers) as answer:
                    assert answer.status == 403, path
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await outsider.ws_connect(visit.address + "ws", origin=visit.address.rstrip("/"))
        assert refusal.value.status == 403


@with_loop
async def test_wrong_tokens_and_other_methods_leave_the_right_token_as_it_is() -> None:
    async with serving(enters=False) as visit:
        assert await visit.status("/?token=") == 403
        assert await visit.status("/?token=%ff%00") == 403
        assert await visit.status("/other" + visit.first_address[visit.first_address.index("?") :]) == 403
        for method in ("HEAD", "POST"):
            async with visit.browser.request(method, visit.first_address) as answer:
                assert answer.status == 403
        await visit.enter()
        assert await visit.status("/") == 200


@with_loop
async def test_a_foreign_host_name_that_leads_here_is_refused() -> None:
    async with serving(enters=False) as visit:
        token = "/" + visit.first_address[visit.first_address.index("?") :]
        for host in ("evil.example", f"evil.example:{visit.port}", f"127.0.0.1.evil.example:{visit.port}", "192.0.2.1"):
            assert await visit.status(token, Host=host) == 421
        await visit.enter()
        assert await visit.status("/", Host="evil.example") == 421
        for host in (f"localhost:{visit.port}", "127.0.0.1:9", "[::1]:9", "LOCALHOST"):  # a tunnel has another port
            cookies = visit.browser.cookie_jar.filter_cookies(URL(visit.address))
            header = "; ".join(f"{cookie.key}={cookie.value}" for cookie in cookies.values())
            assert await visit.status("/", Host=host, Cookie=header) == 200


@with_loop
async def test_a_page_of_somebody_else_opens_no_websocket() -> None:
    async with serving() as visit:
        others = (f"http://127.0.0.1:{visit.port - 1}", f"http://localhost:{visit.port}", "http://127.0.0.1")
        for origin in ("", "null", "http://evil.example", *others):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await visit.open_socket(origin=origin)
            assert refusal.value.status == 403, origin


class _Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]


@with_loop
async def test_all_that_the_page_loads_comes_from_this_server() -> None:
    async with serving() as visit:
        async with visit.browser.get(visit.address) as answer:
            page = await answer.text()
        addresses = _Addresses()
        addresses.feed(page)
        assert all(address.startswith("/") and not address.startswith("//") for address in addresses.found)
        for path in {*addresses.found, *re.findall(r'url\("(.*?)"\)', page)}:
            async with visit.browser.get(visit.address.rstrip("/") + path) as answer:
                assert answer.status == 200, path
                body = await answer.read()
            if path.endswith(".css"):
                assert b"//" not in body.replace(b"https://github.com/chjj/term.js", b"").replace(
                    b"http://bellard.org", b""
                )
        # textual-serve's script fetches what `?ping=` names, before it draws.
        async with visit.browser.get(visit.address + "?ping=http://evil.example/") as answer:
            assert "textual.js" not in await answer.text()


@with_loop
async def test_every_answer_forbids_what_is_not_of_this_server() -> None:
    async with serving(enters=False) as visit:
        before = [await _headers(visit.browser, visit.address.rstrip("/") + path) for path in PATHS]
        await visit.enter()
        after = [await _headers(visit.browser, visit.address.rstrip("/") + path) for path in PATHS]
        for headers in before + after:
            policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
            assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert policy["script-src"] == policy["connect-src"] == policy["font-src"] == "'self'"
            assert set(policy["sandbox"].split()) == {"allow-scripts", "allow-same-origin"}
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-store"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Permissions-Policy"] == "clipboard-read=()"
            assert headers["Cross-Origin-Opener-Policy"] == headers["Cross-Origin-Resource-Policy"] == "same-origin"


async def _headers(browser: aiohttp.ClientSession, address: str) -> Mapping[str, str]:
    async with browser.get(address) as answer:
        return answer.headers


@with_loop
async def test_an_address_names_no_file() -> None:
    async with serving() as visit:
        static = (
            "/static/",
            "/static/images/background.png",
            "/page/",
            "/page/page.html",
            "/page/..%2fweb.py",
            "/static/%2e%2e",
        )
        for path in (*static, "/download/1", "/etc/passwd"):
            address = URL(visit.address.rstrip("/") + path, encoded=True)
            async with visit.browser.get(address) as answer:
                assert answer.status == 404, path
        for method in ("HEAD", "POST", "PUT"):
            async with visit.browser.request(method, visit.address) as answer:
                assert answer.status == 405, method


@with_loop
async def test_the_websocket_is_the_apps_terminal() -> None:
    async with serving() as visit:
        tab = await visit.open_tab("width=101&height=33")
        assert (tab.greeting["COLUMNS"], tab.greeting["ROWS"]) == ("101", "33")
        assert tab.greeting["TEXTUAL_DRIVER"] == "cli.inspect.web_driver:InspectWebDriver"
        await tab.type("draw naïve \x1b[1m")
        assert await tab.read() == "naïve \x1b[1m".encode()
        await tab.socket.send_json(["ping", "1"])
        assert await tab.socket.receive_json() == ["pong", "1"]
        await tab.socket.send_json(["focus"])
        assert await tab.read() == b'{"type": "focus"}'
        await tab.socket.send_json(["resize", {"width": 60, "height": 20}])
        assert json.loads(await tab.read() or b"") == {"type": "resize", "width": 60, "height": 20}


@with_loop
async def test_the_command_gets_its_arguments_as_they_are_and_no_shell_sees_them(tmp_path: Path) -> None:
    made = tmp_path / "made"
    arguments = [
        "a b",
        "",
        "'",
        '"',
        "\\",
        "-n\n$(touch made)",
        f"; touch {made} #",
        f"`touch {made}`",
        "*",
        "naïve",
        "\udcff",
    ]
    async with serving([*PACKET_APP, *arguments]) as visit:
        assert (await visit.open_tab()).greeting["arguments"] == arguments
    assert not made.exists()


@with_loop
async def test_a_screen_is_never_of_a_size_that_takes_all_memory() -> None:
    async with serving() as visit:
        tab = await visit.open_tab("width=999999999&height=0")
        assert (tab.greeting["COLUMNS"], tab.greeting["ROWS"]) == ("1000", "1")
        await tab.socket.send_json(["resize", {"width": -5, "height": 10**30}])
        assert json.loads(await tab.read() or b"") == {"type": "resize", "width": 1, "height": 500}
        other = await visit.open_tab("width=x&height=²")
        assert (other.greeting["COLUMNS"], other.greeting["ROWS"]) == ("80", "24")


MESSAGES = [
    "", "{", "[", "[]", "{}", '["stdin"]', '["stdin", 1]', '["resize", 1]', "[" * 99999,
    '["resize", {"width": "1", "height": 1}]',
]  # fmt: skip


@with_loop
async def test_what_the_page_does_not_send_ends_the_session_or_goes_nowhere() -> None:
    async with serving() as visit:
        for message in MESSAGES:
            tab = await visit.open_tab()
            await tab.socket.send_str(message)
            assert await tab.rest() == b"", message
            await gone(tab.pid)
        tab = await visit.open_tab()
        await tab.socket.send_bytes(b'["stdin", "draw bytes"]')
        for message in ([1], ["quit"], ["open_url", {"url": "http://evil.example"}]):
            await tab.socket.send_json(message)
        await tab.type("draw only this")
        assert await tab.read() == b"only this"


@with_loop
async def test_what_would_do_more_than_draw_does_not_reach_the_terminal() -> None:
    async with serving() as visit:
        tab = await visit.open_tab()
        for drawn, shown in (
            ("a\x1b]52;c;?\x07b", "ab"),
            ("a\x1b]52;c;aGk=\x07b", "ab"),
            ("a\x1b]8;id=1;http://evil.example\x1b\\b\x1b]8;;\x1b\\c", "abc"),
            ("a\x9d0;title\x9cb", "ab"),
            ("a\x1b]0;never\nended", "a"),
            ("\x1b]52;c;aGk=\x07", "\x1b]52;c;aGk=\x07"),  # this is what `y` does
            ("\x1b]52;c;?\x07", ""),
            ("\x1b[38;2;1;2;3mé\x1b[0m", "\x1b[38;2;1;2;3mé\x1b[0m"),
        ):
            await tab.type(f"draw {drawn}")
            assert await tab.read() == shown.encode(), drawn


@with_loop
async def test_the_app_makes_the_browser_open_and_save_nothing() -> None:
    async with serving() as visit:
        tab = await visit.open_tab()
        await tab.type('tell {"type": "open_url", "url": "http://evil.example", "new_tab": true}')
        await tab.type('tell {"type": "deliver_file_start", "key": "1", "path": "/etc/passwd"}')
        await tab.type("pack anything")
        await tab.type("draw only this")
        assert await tab.read() == b"only this"
        assert await visit.status("/download/1") == 404


@with_loop
async def test_the_process_ends_with_its_socket() -> None:
    async with serving() as visit:
        tab, other = await visit.open_tab(), await visit.open_tab()
        await tab.socket.close()
        await gone(tab.pid)
        await other.type("draw here")
        assert await other.read() == b"here"


@with_loop
async def test_a_process_that_hears_nothing_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_ENDING_SECONDS", 0.2)
    async with serving() as visit:
        tab = await visit.open_tab()
        await tab.type("stay")
        assert await tab.read() == b"staying"
        for _ in range(80):
            await tab.type("x" * (LONGEST_MESSAGE - 100))  # more than waits for it
        await tab.socket.close()
        await gone(tab.pid)


@with_loop
async def test_a_process_that_nobody_listens_to_ends_too() -> None:
    async with serving() as visit:
        tab = await visit.open_tab()
        await tab.type("flood")
        assert await tab.read() == b"x" * 100_000
        tab.abort()
        await gone(tab.pid)


@with_loop
async def test_a_session_ends_when_its_app_does() -> None:
    async with serving() as visit:
        for word in ('tell {"type": "exit"}', "tell no JSON", "garbage Dxxxx", "garbage D\x7f\x7f\x7f\x7fand more"):
            tab = await visit.open_tab()
            await tab.type(word)
            assert await tab.rest() == b"", word
            await gone(tab.pid)


@with_loop
async def test_what_ended_an_app_is_shown_in_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving() as visit:
        tab = await visit.open_tab()
        await tab.type("complain error: no such\x1b]0;x\x07 topic\nhint: none")
        shown = await tab.rest()
        assert shown.endswith(b"error: no such\\x1b]0;x\\x07 topic\r\nhint: none")
    assert "a session ended: error: no such\\x1b]0;x\\x07 topic" in capsys.readouterr().err


@with_loop
async def test_a_command_that_cannot_start_costs_one_session(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(["/no/such/command"]) as visit:
        for _ in range(MOST_SESSIONS + 1):
            assert await (await visit.open_socket()).rest() == b""
        assert await visit.status("/") == 200
    assert "a session could not start: no such file or directory" in capsys.readouterr().err


@pytest.mark.longer
@with_loop
async def test_so_many_sessions_are_open_at_once_and_one_more_when_one_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as visit:
        tabs = [await visit.open_tab() for _ in range(MOST_SESSIONS)]
        monkeypatch.setattr(web, "_SLOT_SECONDS", 0.01)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await visit.open_socket()
        assert refusal.value.status == 503
        monkeypatch.setattr(web, "_SLOT_SECONDS", 3600)
        await tabs[0].socket.close()
        assert (await visit.open_tab()).pid not in [tab.pid for tab in tabs]


@with_loop
async def test_a_message_that_is_too_long_ends_only_its_own_session() -> None:
    async with serving() as visit:
        tab, other = await visit.open_tab(), await visit.open_tab()
        await tab.socket.send_str("x" * (LONGEST_MESSAGE + 1))
        assert await tab.rest() == b""
        assert tab.socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        await gone(tab.pid)
        await other.type("draw here")
        assert await other.read() == b"here"


@with_loop
async def test_strangers_that_hold_on_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_STRANGER_SECONDS", 3600)
    async with serving(enters=False) as visit:
        half_open = []
        for _ in range(2 * MOST_STRANGERS):
            reader, writer = await asyncio.open_connection("127.0.0.1", visit.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
            half_open.append((reader, writer))
        await visit.enter()
        tab = await visit.open_tab()
        for reader, _ in half_open[:MOST_STRANGERS]:
            assert await reader.read() == b""
        await tab.type("draw here")
        assert await tab.read() == b"here"
        for _, writer in half_open:
            writer.close()


@with_loop
async def test_a_stranger_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_STRANGER_SECONDS", 0.05)
    async with serving() as visit:
        tab = await visit.open_tab()
        reader, writer = await asyncio.open_connection("127.0.0.1", visit.port)
        writer.write(b"GET / HTTP/1.1\r\n")
        assert await reader.read() == b""
        writer.close()
        await tab.type("draw still here")
        assert await tab.read() == b"still here"


@with_loop
async def test_sessions_end_with_the_server() -> None:
    async with serving() as visit:
        tabs = [await visit.open_tab() for _ in range(2)]
    for tab in tabs:
        await gone(tab.pid)
        assert await tab.rest() == b""


@pytest.mark.longer
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@with_loop
async def test_a_signal_ends_the_server_and_its_sessions(number: signal.Signals) -> None:
    code = (
        "from cli.inspect import web; web._SHUTDOWN_SECONDS = 3600\n"  # what aiohttp would wait for a session to end
        f"web.serve_inspect({PACKET_APP!r}, '127.0.0.1:0')"
    )
    async with started(sys.executable, "-c", code) as (process, visit):
        tab = await visit.open_tab()
        process.send_signal(number)
        assert await process.wait() == 0
        assert not Path(f"/proc/{tab.pid}").exists()


@pytest.mark.longer
@with_loop
async def test_the_screens_end_even_if_the_server_is_killed() -> None:
    async with started(PLOG, "inspect", "--web", "--listen", "127.0.0.1:0", LOG) as (process, visit):
        await (await visit.open_socket()).read_until(b"login")  # a record
        (app,) = children_of(process.pid)
        process.kill()
        await process.wait()
        while is_running(app):
            await asyncio.sleep(0.01)


def test_the_server_starts_without_what_it_does_not_use() -> None:
    """The broker and textual-serve's templates would take half the time until the page can be opened."""
    names = {"core.broker.broker_server", "textual_serve", "jinja2", "textual"}
    code = f"import sys, cli.inspect.web; print(*sorted({names!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    assert done.stdout == b"\n"


@with_loop
async def test_a_port_that_is_taken_is_told_of() -> None:
    async with serving(enters=False) as visit:
        with pytest.raises(
            AccessError, match=f"could not listen on 127.0.0.1:{visit.port}: address already in use"
        ) as e:
            await InspectServer(PACKET_APP, Endpoint("127.0.0.1", visit.port)).run(print)
    assert e.value.exit_code == 3
    assert e.value.hint == f"another server listens there; another port: --listen 127.0.0.1:{visit.port + 1}"


def test_an_address_that_is_not_ours_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AccessError, match=r"could not listen on 192\.0\.2\.1:8000: cannot assign requested address"):
        serve_inspect(PACKET_APP, "192.0.2.1")
    assert "warning: on 192.0.2.1:8000 without encryption: anybody who has the token" in capsys.readouterr().err
    with pytest.raises(UsageError, match="'x/y' is no HOST:PORT"):
        serve_inspect(PACKET_APP, "x/y")


def test_listening_everywhere_takes_names_that_cannot_be_made_to_lead_here() -> None:
    everywhere = Endpoint("0.0.0.0", 8000)
    good = ("myself:8000", "MYSELF", "localhost:1", "192.0.2.7:8000", "[2001:db8::1]:8000")
    evil = ("evil.example", "myself.evil.example", "192.0.2.7.evil.example", "abc", "0x7f000001")
    bad = (None, "", *evil, "a b", "myself:", "[x]", "1.2.3.4/")
    assert [host for host in good if not is_for_server(host, everywhere, "myself")] == []
    assert [host for host in bad if is_for_server(host, everywhere, "myself")] == []
    assert not is_for_server("myself:8000", Endpoint("192.0.2.7", 8000), "myself")
