"""A client that proves itself by a token in a file: of its platform, or of an enterprise."""

from pathlib import Path

import pytest

from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import alice, outcome
from tests.adapters.mcp.oauth.conftest import Person, everything_below
from tests.adapters.mcp.oauth.issuer import Issuer, issuing

IDENTITY, RENEWED = "an-identity-token-of-the-platform", "a-second-identity-of-the-platform"


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    file = tmp_path / "identity"
    file.write_text(f"{IDENTITY}\n")
    return file


def hold(identity: Path, content: str | None) -> None:
    """Let the file have this content; None: let there be no file."""
    identity.unlink()
    if content is not None:
        identity.write_text(content)


def settings(person: Person, issuer: Issuer, identity: Path, more: str = "") -> None:
    own = f'login = "client"\nclient_id = "desk"\nissuer = "{issuer.origin}"\n'
    person.settings(issuer, f'{own}identity_file = "{identity}"\n{more}')


@in_loop
async def test_the_identity_is_read_for_each_token_and_kept_nowhere(
    person: Person, identity: Path
) -> None:
    async with issuing() as issuer:
        issuer.lifetime = 1  # over at once
        issuer.says = f"{IDENTITY} {RENEWED} {{token}}"
        settings(person, issuer, identity)
        async with person.opened() as home:
            await person.pin(home)
            hold(identity, RENEWED)
            turn = await home.send("ops/a", "web.echo text=hi", source=alice)
            kind, text = await outcome(home)
            assert (turn.outcome, kind) == ("completed", "ok")
        forms = [each.form for each in issuer.came("/token")]
    assert {each["grant_type"] for each in forms} == {"urn:ietf:params:oauth:grant-type:jwt-bearer"}
    assert [each["assertion"] for each in (forms[0], forms[-1])] == [IDENTITY, RENEWED]
    assert {(each["client_id"], each["resource"]) for each in forms} == {("desk", issuer.url)}
    kept = f"{text}{everything_below(person.home)}"
    assert not [each for each in (IDENTITY, RENEWED, "an-access-token") if each in kept]


@in_loop
async def test_an_enterprise_gives_another_token_and_the_first_goes_nowhere_else(
    person: Person, identity: Path
) -> None:
    async with issuing() as issuer, issuing() as enterprise:
        more = f'identity_issuer = "{enterprise.origin}"\nidentity_client_id = "staff"\n'
        settings(person, issuer, identity, more)
        async with person.opened() as home:
            await person.pin(home)
        (exchanged,) = [each.form for each in enterprise.came("/token")]
        (given,) = [each.form for each in issuer.came("/token")]
        assert (exchanged["subject_token"], exchanged["client_id"]) == (IDENTITY, "staff")
        assert (exchanged["audience"], exchanged["resource"]) == (issuer.origin, issuer.url)
        assert given["assertion"] == "a-grant"
        assert IDENTITY not in str(issuer.got)


@pytest.mark.parametrize(
    ("content", "refuses", "why"),
    [
        (None, False, "can't be read"),
        ("", False, "does not hold a token"),
        ("two words", False, "does not hold a token"),
        (IDENTITY, True, "gave no token: invalid_grant"),
    ],
)
def test_without_a_good_identity_nothing_is_asked_of_the_server(
    person: Person, identity: Path, content: str | None, refuses: bool, why: str
) -> None:
    hold(identity, content)

    @in_loop
    async def story() -> None:
        async with issuing() as issuer:
            issuer.refuses_identities = refuses
            settings(person, issuer, identity)
            ran = await person.run("list")
            assert why in ran.out + ran.said
            assert len(issuer.came("/token")) == refuses  # it does not ask again
            assert not issuer.came("/mcp")

    story()
