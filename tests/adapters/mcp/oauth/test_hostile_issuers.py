"""Every address and every answer of a login is data: a wrong one ends it before a secret leaves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import holdfast
from holdfast.adapters.mcp.oauth.web import LoginFailed, fetch, is_fit
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import alice, outcome
from tests.adapters.mcp.oauth.conftest import Person
from tests.adapters.mcp.oauth.issuer import Issuer, issuing
from tests.adapters.mcp.web_server import http, serving

CLIENT = 'login = "client"\nclient_id = "desk"\nclient_secret_env = "DESK_SECRET"\n'


def described(**changes: Any) -> Callable[[Issuer], None]:
    return lambda issuer: issuer.metadata.update(changes)


def answering(**changes: str) -> Callable[[Issuer], None]:
    return lambda issuer: issuer.answer.update(changes)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda issuer: issuer.resource.update(resource="https://evil.example.com/mcp"),
         "describes itself as"),
        (lambda issuer: issuer.resource.update(resource=f"{issuer.url}2"), "describes itself as"),
        (lambda issuer: issuer.resource.update(authorization_servers=["http://evil.example.com"]),
         "must be https"),
        (lambda issuer: issuer.resource.update(authorization_servers=["file:///etc/passwd"]),
         "must be https"),
        (described(issuer="https://evil.example.com"), "calls itself"),
        (described(token_endpoint="http://evil.example.com/token"), "is not https"),
        (described(authorization_endpoint="javascript:alert(1)"), "is not https"),
        (described(code_challenge_methods_supported=["plain"]), "PKCE"),
        (described(registration_endpoint=None), "registers no clients"),
        (answering(state="of-another-login"), "does not belong to this login"),
        (answering(iss="https://evil.example.com"), "does not come from the issuer"),
        (described(authorization_response_iss_parameter_supported=True),
         "does not come from the issuer"),
        (answering(code="stolen"), "gave no token"),
    ],
    ids=[
        "other_resource", "resource_with_our_beginning", "issuer_without_tls", "issuer_is_a_file",
        "issuer_of_another_name", "token_without_tls", "script_as_address", "no_pkce", "no_client",
        "other_state", "other_issuer", "issuer_not_named", "other_code",
    ],
)  # fmt: skip
@in_loop
async def test_a_wrong_word_ends_the_login(
    person: Person, change: Callable[[Issuer], None], why: str
) -> None:
    async with issuing() as issuer:
        person.settings(issuer)
        change(issuer)
        with pytest.raises(LoginFailed, match=why):
            await person.login()
        assert issuer.tokens == {}
        assert not (person.home / "logins" / "web.json").exists()


@in_loop
async def test_a_description_elsewhere_is_not_followed(person: Person) -> None:
    async with issuing() as issuer, issuing() as other:
        issuer.moved = f"{other.origin}/.well-known/oauth-protected-resource/mcp"
        person.settings(issuer)
        with pytest.raises(LoginFailed, match="status 307"):
            await person.login()
        assert other.got == []


@in_loop
async def test_an_issuer_that_settings_do_not_name_is_refused(person: Person) -> None:
    async with issuing() as issuer, issuing() as other:
        issuer.named_issuer = other.origin
        person.settings(issuer, f'issuer = "{issuer.origin}"')
        login = await person.run("login", "web")
        assert (login.code, other.got) == (6, [])
        assert f"names the issuer {other.origin}, and settings {issuer.origin}" in login.said


@in_loop
async def test_a_secret_of_settings_goes_to_the_issuer_of_settings_alone(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_SECRET", "the-secret-of-the-desk")
    async with issuing() as issuer, issuing() as other:
        issuer.named_issuer = other.origin  # the server names one that collects secrets
        person.settings(issuer, f'{CLIENT}issuer = "{issuer.origin}"')
        async with person.opened() as home:
            await person.pin(home)
            await home.send("ops/a", "web.echo text=hi", source=alice)
            assert (await outcome(home))[0] == "ok"
        (asked,) = issuer.came("/token")
        assert asked.form["grant_type"] == "client_credentials"
        assert asked.headers["authorization"].startswith("Basic ")
        assert other.got == []


@in_loop
async def test_a_client_gets_more_scopes_by_itself_and_once(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_SECRET", "the-secret-of-the-desk")
    async with issuing() as issuer:
        issuer.call_scope = "write"
        person.settings(issuer, f'{CLIENT}issuer = "{issuer.origin}"')
        async with person.opened() as home:
            await person.pin(home)
            await home.send("ops/a", "web.echo text=hi", source=alice)
            kind, text = await outcome(home)
            assert (kind, "lacks the scopes write" in text) == ("error", True)
            await home.send("ops/b", "web.echo text=hi", source=alice)
            assert (await outcome(home, "ops/b"))[0] == "ok"
        assert len(issuer.calls()) == 2


@in_loop
async def test_a_client_without_its_secret_sends_nothing(person: Person) -> None:
    async with issuing() as issuer:
        person.settings(issuer, f'{CLIENT}issuer = "{issuer.origin}"')
        async with person.opened() as home:
            with pytest.raises(holdfast.Refused, match="the variable DESK_SECRET is not set"):
                await person.pin(home)
        assert issuer.calls() == []
        assert issuer.came("/token") == []


@pytest.mark.parametrize(
    ("address", "server", "expected"),
    [
        ("https://login.example.com/x", "https://crm.example.com/mcp", True),
        ("http://login.example.com/x", "https://crm.example.com/mcp", False),
        ("http://127.0.0.1:9/x", "https://crm.example.com/mcp", False),  # a service of ours
        ("http://127.0.0.1:9/x", "http://localhost:8/mcp", True),
        ("http://10.0.0.1/x", "http://localhost:8/mcp", False),
        ("https://me:word@login.example.com/x", "https://crm.example.com/mcp", False),
        ("https://login.example.com/x y", "https://crm.example.com/mcp", False),
        ("https://[::1", "https://crm.example.com/mcp", False),
        ("file:///etc/passwd", "https://crm.example.com/mcp", False),
        (None, "https://crm.example.com/mcp", False),
    ],
)
def test_which_addresses_holdfast_may_use(address: object, server: str, expected: bool) -> None:
    assert is_fit(address, server) is expected


@pytest.mark.parametrize(
    "body",
    [b'{"a":' * 40_000, b"[" * 200_000, b'{"issuer":"a","issuer":"b"}', b'{"a":1e999}', b"\xff"],
    ids=["deep_objects", "deep_lists", "key_twice", "number_without_end", "not_text"],
)
@in_loop
async def test_an_answer_that_is_not_strict_json_says_nothing(body: bytes) -> None:
    async with serving(lambda _, __: http("200 OK", body)) as server:
        assert (await fetch(server.url)).body == {}


@in_loop
async def test_an_issuer_that_never_ends_its_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.adapters.mcp.oauth.web._WHOLE_SECONDS", 0.3)
    still_asked = asyncio.Event()

    async def drip() -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"
        while not still_asked.is_set():
            yield b" "
            await asyncio.sleep(0.02)

    async with serving(lambda _, __: drip()) as server:
        try:
            with pytest.raises(LoginFailed, match="did not end"):
                await fetch(server.url)
        finally:
            still_asked.set()
