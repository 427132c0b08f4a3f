"""
The plan: exactly the call that would run, and its fingerprint.

A tool is identified by its definition (a digest of name, schema, contract). A call is identified by
its binding (the plan that an adapter found). Both are data: the adapter makes the binding, and this
room compares it.
"""

from typing import Literal, get_args

import msgspec
from blake3 import blake3

from holdfast.errors import Unusable

Contract = Literal["pure", "idempotent", "once"]
Mode = Literal["ask", "auto"]
AudienceName = Literal["public", "team", "personal"]
Reach = Literal["none", "workspace", "outside"]
Level = Literal["isolated", "limited", "unconfined"]
"""How strongly a command is confined: see `docs/reference/settings.md`."""
RiskKind = Literal[
    "destructive",
    "privilege",
    "upload",
    "force_push",
    "runtime_code",
    "outside",
    "unconfined",
    "in_doubt_twin",
]
"""Why a call deserves a second look, by its effect."""
ToolKind = Literal[
    "plain",
    "shell",
    "read_file",
    "write_file",
    "question",
    "memory",
    "reminder",
    "delegate",
    "job_cancel",
    "server",
    "handed_over",
    "withdrawn",
]


def require_tool_options(contract: str, mode: str, audience: str) -> None:
    """Refuse an option of a tool that does not exist. A program may pass any value here."""
    for option, given, known in (
        ("contract", contract, get_args(Contract)),
        ("mode", mode, get_args(Mode)),
        ("audience", audience, get_args(AudienceName)),
    ):
        if given not in known:
            raise Unusable(
                f"{given!r} is not a valid {option} of a tool", hint=f"use {', '.join(known)}"
            )


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """
    The definition of a tool. Every field is part of its identity: a change voids earlier approvals.

    `default_mode` applies where settings have no rule: `ask`, or `auto` (for pure tools that only
    read).
    """

    name: str
    description: str
    parameters: str  # JSON schema of the arguments object, as JSON text
    contract: Contract = "once"
    default_mode: Mode = "ask"
    kind: ToolKind = "plain"
    audience: AudienceName = "personal"  # the widest one it may be called in without settings
    free_fields: tuple[str, ...] = ()  # fields a grant does not bind
    # digest of the implementing code's identity (module:qualname, version), for Python tools
    code: str = ""

    def digest(self) -> str:
        return blake3(msgspec.json.encode(self)).hexdigest()


class Risk(msgspec.Struct, frozen=True, kw_only=True):
    """
    One reason to look twice. `start` and `end` are offsets of the part in the text that is shown.
    """

    kind: RiskKind
    text: str
    start: int
    end: int


class SchemaDefinition(ToolDefinition, frozen=True, kw_only=True):
    """
    The definition of a tool that is known by its JSON schema. `identity` is the schema without
    titles and descriptions, in one spelling. It stands in the digest for schema and description.
    """

    identity: str

    def digest(self) -> str:
        return blake3(
            msgspec.json.encode(msgspec.structs.replace(self, description="", parameters=""))
        ).hexdigest()


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """
    The plan that an adapter found for a call. Equal bindings run the same bytes in the same place.

    `display` is made from the bytes that will execute. It is complete, with invisible and
    bidirectional characters made visible.
    """

    display: str
    cwd: str | None = None
    cwd_identity: str | None = None  # "dev:ino" of the working folder
    # path, identity and digest of the program that would read the text
    interpreter: str | None = None
    scripts: tuple[
        str, ...
        # path and content digest of every file that is known to run: programs, private copies,
        # named files
    ] = ()
    environment: str | None = None  # digest of the exact environment
    folders: tuple[str, ...] = ()  # "dev:ino path" of every folder that a command may change
    level: Level | None = None  # None: not a command, but code of the embedding program
    network: bool = False  # a command that reaches the network
    reach: Reach = "none"  # whether it touches paths, and whether any lies outside the workspace
    # False: the text cannot be analysed for sure, such as a substitution; it deserves a second
    # reading.
    readable: bool = True
    # False: it may be approved once and never be remembered, such as a command that runs other
    # programs or a write to a file that programs run.
    memorable: bool = True
    # It may run files whose bytes are not bound. The display names them, so the digest leaves this
    # out.
    runs_open_files: bool = False
    path: str | None = None  # for file tools: the resolved path
    warnings: tuple[str, ...] = ()  # look-alike characters and the like, shown above the plan
    risks: tuple[Risk, ...] = ()  # offsets are in `display`

    def digest(self) -> str:
        """
        Return the fingerprint of the plan. Risks are comments on the plan, so a later version that
        words them differently voids no prompt.
        """
        plan = msgspec.structs.asdict(self)
        del plan["risks"], plan["runs_open_files"]
        return blake3(msgspec.json.encode(plan)).hexdigest()


def is_contained(binding: Binding) -> bool:
    """
    Check whether a call may run without a person's consent to each call: it is not a command, or it
    is a command that reaches nothing of the user.
    """
    return binding.level in (None, "isolated")
