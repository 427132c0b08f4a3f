"""
What would exactly run, and its fingerprint.

A tool is known by its definition (a digest of name, schema, contract), a call by its binding (what
a look at the world said would run). Both are data: whoever looks is an adapter, whoever compares is
here.
"""

from typing import Literal

import msgspec
from blake3 import blake3

Contract = Literal["pure", "idempotent", "once"]
Reach = Literal["none", "workspace", "outside"]
Level = Literal["isolated", "limited", "unconfined"]
"""How far a command is kept from what it was not given: see `docs/settings.md`."""
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
]


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a tool is. Everything here is part of its identity: a change voids what was approved
    before.

    `default_mode` is what happens where settings say nothing: `ask`, or `auto` (for pure tools that
    only look).
    """

    name: str
    description: str
    parameters: str  # JSON schema of the arguments object, as JSON text
    contract: Contract = "once"
    default_mode: Literal["ask", "auto"] = "ask"
    kind: ToolKind = "plain"
    audience: Literal["public", "team", "personal"] = (
        "personal"  # the widest audience it may be called in without settings
    )
    free_fields: tuple[str, ...] = ()  # fields a grant does not bind
    # digest of the implementing code's identity (module:qualname, version), for Python tools
    code: str = ""

    def digest(self) -> str:
        return blake3(msgspec.json.encode(self)).hexdigest()


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a look at the world said would run. Equal bindings run the same bytes in the same place.

    `display` is made from the bytes that will execute: complete, with invisible and bidirectional
    characters made visible.
    """

    display: str
    cwd: str | None = None
    cwd_identity: str | None = None  # "dev:ino" of the working folder
    interpreter: str | None = None  # path, identity and digest of what would read the text
    scripts: tuple[
        str, ...
        # path and content digest of every file that is known to run: programs, private copies,
        # named
        # files
    ] = ()
    environment: str | None = None  # digest of the exact environment
    folders: tuple[str, ...] = ()  # "dev:ino path" of every folder that a command may change
    level: Level | None = None  # None: not a command, but code of the embedding program
    network: bool = False  # a command that reaches the network
    reach: Reach = "none"  # whether it touches paths, and whether any lies outside the workspace
    # False: text that can't be read for sure, such as a substitution: it deserves a second look
    readable: bool = True
    # False: it may be approved once, and never be remembered: a command that is not of leaf
    # programs, a write to a file that programs run
    memorable: bool = True
    path: str | None = None  # for file tools: the resolved path
    warnings: tuple[str, ...] = ()  # look-alike characters and the like, shown above the plan

    def digest(self) -> str:
        return blake3(msgspec.json.encode(self)).hexdigest()


def is_contained(binding: Binding) -> bool:
    """
    Whether it may run without a person's consent to each call: not a command, or one that reaches
    nothing of the user.
    """
    return binding.level in (None, "isolated")
