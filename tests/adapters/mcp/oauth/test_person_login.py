"""A person logs in once. The tokens are renewed, kept secret, and never make a call run twice."""

import asyncio
import json
import stat
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import holdfast
from holdfast.adapters.mcp.oauth.challenge import Challenge
from holdfast.adapters.mcp.oauth.credentials import credentials_of
from holdfast.adapters.mcp.oauth.login import browser_return
from holdfast.adapters.mcp.oauth.web import LoginFailed
from holdfast.ports.tool_servers import ToolServer
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import alice, outcome
from tests.adapters.mcp.oauth.conftest import Person, everything_below
from tests.adapters.mcp.oauth.issuer import Came, issuing

TEXT = "web.echo text=hi"


@in_loop
async def test_from_a_refusal_to_a_call(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        async with person.opened() as home:
            with pytest.raises(holdfast.Refused, match="run `holdfast mcp login web`"):
                await person.pin(home)
            login = await person.run("login", "web", "--json")
            assert (login.code, json.loads(login.out)) == (
                0,
                {"server": "web", "issuer": issuer.origin, "scopes": ["basic"]},
            )
            assert f"names the issuer {issuer.origin}" in login.said
            await person.pin(home)  # the process that was open already sees the login
            await home.send("ops/a", TEXT, source=alice)
            assert (await outcome(home))[0] == "ok"
        (call,) = issuer.calls()
        assert call.headers["authorization"].removeprefix("Bearer ") in issuer.tokens
        (asked,) = issuer.came("/authorize")
        assert asked.form["resource"] == issuer.url
        folder, file = person.home / "logins", person.home / "logins" / "web.json"
        assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, file)] == [0o700, 0o600]


@in_loop
async def test_a_server_that_repeats_its_token_gets_it_into_no_record(person: Person) -> None:
    async with issuing() as issuer:
        issuer.says = "your token is {token}, kept for ever"
        person.settings(issuer)
        await person.login()
        async with person.opened() as home:
            await person.pin(home)
            await home.send("ops/a", TEXT, source=alice)
            found = await outcome(home)
        assert found == ("ok", "your token is [secret], kept for ever")
        kept = everything_below(person.home)
        assert [each for each in (*issuer.tokens, *issuer.renewals) if each in kept] == []


@in_loop
async def test_a_token_that_was_replaced_is_still_hidden(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        await person.login()
        (old,) = issuer.tokens
        async with person.opened() as home:
            await person.pin(home)
            issuer.tokens.clear()
            issuer.says = f"before it was {old}"
            await home.send("ops/a", TEXT, source=alice)
            assert await outcome(home) == ("ok", "before it was [secret]")


@in_loop
async def test_a_token_that_ends_is_renewed_before_the_call_is_sent(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        await person.login()
        async with person.opened() as home:
            await person.pin(home)
            issuer.tokens.clear()  # as if it had ended early
            await home.send("ops/a", TEXT, source=alice)
            assert (await outcome(home))[0] == "ok"
        assert len(issuer.calls()) == 1
        assert [each.form["grant_type"] for each in issuer.came("/token")] == [
            "authorization_code",
            "refresh_token",
        ]


@pytest.mark.parametrize("worded", [True, False])
@in_loop
async def test_a_call_that_is_refused_for_its_token_is_sent_once(
    person: Person, worded: bool
) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        await person.login()
        async with person.opened() as home:
            await person.pin(home)
            issuer.worded = worded
            answered = issuer._mcp

            def ending(came: Came) -> Any:
                if came.message.get("method") == "tools/call":
                    issuer.tokens.clear()
                    issuer._mcp = answered  # type: ignore[method-assign]
                return answered(came)

            issuer._mcp = ending  # type: ignore[method-assign]
            await home.send("ops/a", TEXT, source=alice)
            kind, text = await outcome(home)
            assert len(issuer.calls()) == 1
            if not worded:  # anything on the way could have said so
                assert kind == "in_doubt"
                return
            assert (kind, "nothing was run" in text) == ("error", True)
            await home.send("ops/b", TEXT, source=alice)
            assert (await outcome(home, "ops/b"))[0] == "ok"
        assert len(issuer.calls()) == 2


@in_loop
async def test_a_call_that_needs_more_asks_for_a_login_with_more(person: Person) -> None:
    async with issuing() as issuer:
        issuer.call_scope = "write"
        person.settings(issuer)
        await person.login()
        async with person.opened() as home:
            await person.pin(home)
            await home.send("ops/a", TEXT, source=alice)
            kind, text = await outcome(home)
            assert kind == "error"
            assert "lacks the scopes write; run `holdfast mcp login web`" in text
            await person.login()
            await home.send("ops/b", TEXT, source=alice)
            assert (await outcome(home, "ops/b"))[0] == "ok"
        asked = [each.form["scope"] for each in issuer.came("/authorize")]
        assert asked == ["basic", "basic write"]


@in_loop
async def test_settings_bound_the_scopes(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer, 'scopes = ["basic", "other"]')
        await person.login()
        assert [each.form["scope"] for each in issuer.came("/authorize")] == ["basic other"]


@in_loop
async def test_two_processes_renew_a_login_once(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        await person.login()
        issuer.got.clear()
        settings = ToolServer(url=issuer.url)
        users = [credentials_of("web", settings, str(person.home)) for _ in range(3)]
        (old,) = {await each.token() for each in users}
        refusal = Challenge(status=401)
        new = await asyncio.gather(*(each.another(refusal, old) for each in users))
        for each in users:
            each.close()
        assert len(set(new)) == 1
        assert new[0] != old
        assert len(issuer.came("/token")) == 1


@in_loop
async def test_a_login_that_ended_for_good_asks_for_another(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        await person.login()
        issuer.tokens.clear()
        issuer.renewals.clear()
        async with person.opened() as home:
            with pytest.raises(holdfast.Refused, match="gave no token: invalid_grant"):
                await person.pin(home)


@in_loop
async def test_a_login_at_one_address_counts_for_no_other(person: Person) -> None:
    async with issuing() as issuer, issuing() as other:
        person.settings(issuer)
        await person.login()
        person.settings(other)
        async with person.opened() as home:
            with pytest.raises(holdfast.Refused, match="mcp login web"):
                await person.pin(home)
        assert [each.headers.get("authorization") for each in other.got] == [None] * len(other.got)


@in_loop
async def test_another_issuer_gets_nothing_of_the_one_before(person: Person) -> None:
    async with issuing() as issuer, issuing() as other:
        person.settings(issuer)
        await person.login()
        issuer.named_issuer = other.origin
        await person.login()
        assert len(other.came("/register")) == 1
        (asked,) = other.came("/token")
        assert asked.form["code"] == "a-code-1"  # its own


@in_loop
async def test_a_login_that_others_may_read_is_not_used(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        await person.login()
        (person.home / "logins" / "web.json").chmod(0o644)
        issuer.got.clear()
        async with person.opened() as home:
            with pytest.raises(holdfast.Refused, match="not this user's alone"):
                await person.pin(home)
        assert issuer.got == []


@in_loop
async def test_a_login_that_is_lost_right_before_the_call_runs_nothing(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        await person.login()
        async with person.opened() as home:
            await person.pin(home)
            answered = issuer._mcp

            def losing(came: Came) -> Any:
                if came.message.get("method") == "tools/list":
                    (person.home / "logins" / "web.json").chmod(0o644)
                return answered(came)

            issuer._mcp = losing  # type: ignore[method-assign]
            await home.send("ops/a", TEXT, source=alice)
            kind, text = await outcome(home)
        assert (kind, "nothing was run" in text, issuer.calls()) == ("error", True, [])


@in_loop
async def test_a_tool_cannot_log_in(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        login = await person.run("login", "web", env="HOLDFAST_TOOL")
        assert (login.code, issuer.got) == (6, [])


@in_loop
async def test_a_browser_on_another_machine_is_answered_by_pasting(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        login = await person.run("login", "web", "--paste")
        assert login.code == 0, login
        assert "Paste the address" in login.said


@in_loop
async def test_only_the_browser_of_this_login_is_heard() -> None:
    async with browser_return(0) as back:
        waiting = asyncio.ensure_future(back.address("the-state", timeout_seconds=5))
        port = urlsplit(back.redirect).port
        for address, host in (
            (f"{back.redirect}?state=other&code=x", f"127.0.0.1:{port}"),
            (f"{back.redirect}?state=the-state&code=x", "rebound.example.com"),
            (f"http://127.0.0.1:{port}/other?state=the-state", f"127.0.0.1:{port}"),
        ):
            request = urllib.request.Request(address, headers={"host": host})  # noqa: S310
            with pytest.raises(urllib.error.HTTPError, match="404"):
                await asyncio.to_thread(urllib.request.urlopen, request)
        assert not waiting.done()
        ours = f"{back.redirect}?state=the-state&code=ours"
        with await asyncio.to_thread(urllib.request.urlopen, ours) as page:
            assert page.status == 200
        assert parse_qs(urlsplit(await waiting).query)["code"] == ["ours"]


@in_loop
async def test_a_login_waits_for_a_bounded_time() -> None:
    async with browser_return(0) as back:
        with pytest.raises(LoginFailed, match=r"nobody logged in within 0\.01 s"):
            await back.address("the-state", timeout_seconds=0.01)


@in_loop
async def test_logging_out_forgets_the_login(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        await person.login()
        file = person.home / "logins" / "web.json"
        assert file.exists()
        assert (await person.run("logout", "web")).code == 0
        assert not file.exists()
