"""
Tokens: who sends a request over HTTP, and which scopes they have.

The gateway reads both from the home's journal and never from a client's claim. A token is 256
random bits and is shown once. The home stores its hash with the person, scopes, audience and end.
Every request reads the current state of the home's journal, so a revoked token fails on the next
request. The audience is the narrowest one in which the token sends and reads: `personal`,
`team:NAME` or `public`.
"""

import re
import secrets
from collections.abc import Collection, Sequence

import msgspec
from blake3 import blake3

from holdfast.errors import Refused, Unusable
from holdfast.runtime.ledger.home_ledger import HomeLedger, refuse_disputed
from holdfast.runtime.reports.types import iso
from holdfast.session.authority.context import (
    PUBLIC_BOUNDARY,
    Audience,
    MessageSource,
    Principal,
    Provenance,
)
from holdfast.session.authority.expiry import Moment, is_over
from holdfast.session.authority.policy import Way
from holdfast.session.home.events import AnyHomeEvent, HomeState, TokenAdded, TokenRevoked
from holdfast.session.state import Reader
from holdfast.token_form import RANDOM_BYTES, is_token, token_of

HTTP_CHANNEL = "http"
SCOPES = ("read", "send", "approve", "admin")
# Living tokens in a home. A request finds its token by hash, so this bounds the list, not a search.
TOKENS_MAX = 1_000
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_TEAM = re.compile(r"team(?::([a-z0-9][a-z0-9._-]{0,63}))?\Z")
_VERIFIED = "verified"
CODE = "code"


def new_token() -> str:
    """
    Return 256 random bits in the form of `holdfast.token_form`, which is recognisable in any text.

    >>> is_token(new_token())
    True
    """
    return token_of(secrets.token_bytes(RANDOM_BYTES))


def digest_of(token: str) -> str:
    """Return the stored form. A plain hash is enough because the token is fully random."""
    return blake3(b"holdfast token 1\0" + token.encode()).hexdigest()


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """A valid token's owner, for one request."""

    name: str
    digest: str
    person: str
    scopes: frozenset[str]
    audience: Audience
    boundary: str
    expires_at: int | None
    way: Way = "script"  # the way in which an answer with this token is given

    @classmethod
    def of(cls, added: TokenAdded) -> "Bearer":
        audience, boundary = reader_set_of(added.audience, added.person)
        return cls(
            name=added.name,
            digest=added.digest,
            person=added.person,
            scopes=frozenset(added.scopes),
            audience=audience,
            boundary=boundary,
            expires_at=added.expires_at,
            way="page" if added.way == "page" else "script",
        )

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    @property
    def reads_every_reader_set(self) -> bool:
        return self.is_admin or self.audience is Audience.PERSONAL

    def may(self, scope: str) -> bool:
        """
        Return whether the token has this scope.

        An admin may read everything and stop anything. Sending and approving happen as a person and
        need their own scopes.
        """
        if scope == "stop":
            return self.may("read") and ("send" in self.scopes or self.is_admin)
        return scope in self.scopes or (scope == "read" and self.is_admin)

    def source(self) -> MessageSource:
        """Return the transport facts of a message. All of them come from the server's record."""
        group = self.audience is not Audience.PERSONAL
        return MessageSource(
            channel=HTTP_CHANNEL,
            person=self.person,
            principal=Principal.UNTRUSTED_EXTERNAL
            if self.audience is Audience.PUBLIC
            else Principal.TRUSTED_INTERNAL,
            audience=self.audience,
            boundary=self.boundary,
            provenance=Provenance(
                authenticity=_VERIFIED,
                taint="clean",
                scope="group" if group else "direct",
                kind="message",
            ),
            can_prompt=True,
        )

    def reads(self, audience: str | None, boundary: str | None) -> bool:
        """
        Return whether an item with that audience and boundary is within this token's audience. An
        unknown audience or boundary is not, except for an admin.
        """
        if audience is None or boundary is None or audience not in set(Audience):
            return self.is_admin
        if self.reads_every_reader_set:
            return True
        reader_set = Audience(audience)
        return reader_set is Audience.PUBLIC or (
            reader_set is self.audience and boundary == self.boundary
        )

    def sees(self, readers: Collection[Reader]) -> bool:
        """
        Return whether the token may see a session: its person takes part within the token's
        audience, or it is an admin's.
        """
        return self.is_admin or any(
            each.person == self.person and self.reads(each.audience, each.boundary)
            for each in readers
        )

    def reads_all(self, readers: Collection[Reader]) -> bool:
        """
        Return whether everything said among these readers is within this token's audience. Content
        that does not record its boundary is shown only to such a token.
        """
        return all(self.reads(each.audience, each.boundary) for each in readers)

    def is_concerned(
        self, audience: str | None, boundary: str | None, people: Collection[str | None]
    ) -> bool:
        """
        Return whether the token may see a prompt: its person requested it or may answer it, within
        the token's audience, or it is an admin's.
        """
        return self.is_admin or (self.person in people and self.reads(audience, boundary))

    def may_join(self, readers: Collection[Reader]) -> bool:
        """
        Return whether this person's first message may go into a session that others began.

        A sender sees everything in the session, and so does the model that replies to them.
        Therefore everything in it must have exactly this token's audience and boundary.
        """
        if self.is_admin:
            return True
        shared = self.audience is not Audience.PERSONAL
        return (
            shared
            and bool(readers)
            and all(
                (each.audience, each.boundary) == (self.audience.value, self.boundary)
                for each in readers
            )
        )


def reader_set_of(audience: str, person: str) -> tuple[Audience, str]:
    """
    >>> reader_set_of("team:ops", "alice")
    (<Audience.TEAM: 'team'>, 'team:ops')
    """
    if audience == Audience.PERSONAL.value:
        return Audience.PERSONAL, f"personal:{person}"
    if audience == Audience.PUBLIC.value:
        return Audience.PUBLIC, PUBLIC_BOUNDARY
    if (team := _TEAM.match(audience)) is not None:
        return Audience.TEAM, f"team:{team[1] or 'home'}"
    raise Unusable(
        f"{audience!r} is not an audience",
        code="malformed",
        hint="personal, team, team:NAME or public",
    )


class TokenReport(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is listed: everything but itself."""

    name: str
    person: str
    scopes: tuple[str, ...]
    audience: str
    expires_at: str | None
    expired: bool


def token_report(added: TokenAdded, *, moment: Moment) -> TokenReport:
    return TokenReport(
        name=added.name,
        person=added.person,
        scopes=added.scopes,
        audience=added.audience,
        expires_at=iso(added.expires_at) if added.expires_at is not None else None,
        expired=is_over(added.expires_at, moment),
    )


class TokenBook:
    """
    The home's tokens, by hash. Caches only the last read of the home's journal.

    `now` is the clock's time. Expiry is judged by it and by the home's journal. An expiry that was
    applied once is noted in the journal, so that a clock set back does not revive the token.
    """

    def __init__(self, home: HomeLedger) -> None:
        self._home = home
        self._of: dict[str, TokenAdded] | None = (
            None  # `_of` holds the tokens from which `_by_digest` was built
        )
        self._by_digest: dict[str, TokenAdded] = {}

    async def find(self, token: str, *, now: int) -> Bearer | None:
        """Return the token's owner, or None if the token is unknown, revoked or expired."""
        if not is_token(token):
            return None
        added = (await self._known()).get(digest_of(token))
        return (
            None
            if added is None or added.way == CODE or await self._has_ended(added, now)
            else Bearer.of(added)
        )

    async def _has_ended(self, added: TokenAdded, now: int) -> bool:
        moment = self._home.moment(now)
        if not is_over(added.expires_at, moment):
            return False
        if added.expires_at is not None and moment.journal < added.expires_at:
            await self._home.note_time(now)
        return True

    async def still_lives(self, bearers: Collection[Bearer], *, now: int) -> set[str]:
        """
        Return the hashes of the given tokens that are still valid with the same person, scopes and
        audience.
        """
        known = await self._known()
        living = set()
        for each in bearers:
            added = known.get(each.digest)
            if (
                added is not None
                and Bearer.of(added) == each
                and not await self._has_ended(added, now)
            ):
                living.add(each.digest)
        return living

    async def _known(self) -> dict[str, TokenAdded]:
        tokens = (await self._home.refresh()).tokens
        if self._of != tokens:
            self._of = dict(tokens)
            self._by_digest = {each.digest: each for each in tokens.values()}
        return self._by_digest

    async def reports(self, *, now: int) -> tuple[TokenReport, ...]:
        tokens = (await self._home.refresh()).tokens
        moment = self._home.moment(now)
        return tuple(token_report(each, moment=moment) for _, each in sorted(tokens.items()))

    async def add(
        self,
        name: str,
        *,
        person: str,
        scopes: Sequence[str],
        audience: str = "personal",
        expires_at: int | None = None,
        by: str,
        now: int,
        way: str | None = None,
    ) -> tuple[str, TokenAdded]:
        """
        Add a token and return it; it is shown here and never again.

        Refuse the name of a living token. Revoke expired codes to make room.
        """
        _check(name, person, scopes)
        reader_set_of(audience, person)
        await self._home.refresh()
        moment = self._home.moment(now)
        if expires_at is not None:
            refuse_disputed(moment, "no token with an end can be made")
        token = new_token()  # a code has the same form, so it is recognised in a text too
        added = TokenAdded(
            name=name,
            digest=digest_of(token),
            person=person,
            scopes=tuple(scope for scope in SCOPES if scope in scopes),
            audience="team:home" if audience == "team" else audience,
            expires_at=expires_at,
            by=by,
            way=way,
        )

        def decide(state: HomeState) -> Sequence[AnyHomeEvent]:
            known = state.tokens.get(name)
            if known is not None and not is_over(known.expires_at, moment):
                raise Refused(
                    f"there is a token {name!r} already, of {known.person}",
                    code="exists",
                    hint=f"`holdfast tokens revoke {name}` first",
                )
            if (
                sum(not is_over(each.expires_at, moment) for each in state.tokens.values())
                >= TOKENS_MAX
            ):
                raise Refused(
                    f"{TOKENS_MAX} tokens live already", code="too_many", hint="revoke some"
                )
            old = [
                each.name
                for each in state.tokens.values()
                if each.way == CODE and is_over(each.expires_at, moment)
            ]  # revoke expired codes here, because nobody would list or revoke them
            return (*(TokenRevoked(name=each, by=by) for each in old if each != name), added)

        await self._home.append_decided(decide)
        return token, added

    async def exchange(
        self, code: str, *, name: str, expires_at: int, now: int
    ) -> tuple[str, TokenAdded] | None:
        """
        Exchange a code for a page's token in one commit, so that a code is used at most once.

        Return None if the code is unknown, used or too old.
        """
        token = new_token()
        made: list[TokenAdded] = []

        def decide(state: HomeState) -> Sequence[AnyHomeEvent]:
            made.clear()
            found = next(
                (
                    each
                    for each in state.tokens.values()
                    if each.way == CODE and each.digest == digest_of(code)
                ),
                None,
            )
            if found is None or is_over(found.expires_at, self._home.moment(now)):
                return ()
            made.append(
                msgspec.structs.replace(
                    found, name=name, digest=digest_of(token), expires_at=expires_at, way="page"
                )
            )
            return (TokenRevoked(name=found.name, by=found.by), *made)

        if (await self._known()).get(digest_of(code)) is None:
            return None
        await self._home.append_decided(decide)
        return (token, made[0]) if made else None

    async def revoke(self, name: str, *, by: str) -> None:
        def decide(state: HomeState) -> Sequence[AnyHomeEvent]:
            if name not in state.tokens:
                raise Refused(
                    f"no token {name!r}",
                    code="unknown",
                    hint="`holdfast tokens list` shows them",
                )
            return (TokenRevoked(name=name, by=by),)

        await self._home.append_decided(decide)


def _check(name: str, person: str, scopes: Sequence[str]) -> None:
    if not _NAME.match(name):
        raise Unusable(
            f"{name!r} is not a valid token name",
            code="malformed",
            hint="a-z, 0-9, '.', '_', '-'; 64 at most",
        )
    if (
        not person.strip()
        or person != person.strip()
        or len(person) > _PERSON_CHARS_MAX
        or not person.isprintable()
    ):
        raise Unusable(
            f"{person!r} is not a valid person name",
            code="malformed",
            hint="printable, no space at its ends",
        )
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        named = f"{', '.join(unknown)} is not a scope" if unknown else "no scopes given"
        raise Unusable(named, code="malformed", hint=f"choose from {', '.join(SCOPES)}")


_PERSON_CHARS_MAX = 128
