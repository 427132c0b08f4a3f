"""
Generate `session/view/confusables.py` from Unicode's table of look-alikes (UTS #39):

    python -m proof.generated_docs.confusables_data confusables.txt \\
        > src/holdfast/session/view/confusables.py

The input is `security/VERSION/confusables.txt` of the Unicode Character Database. The output keeps
the characters that resemble ASCII text, in two groups: those that the table maps to ASCII, and
others that resemble ASCII (small capitals, letters that the table maps to small capitals, and a few
added here). The committed module names the version and the digest of its input file.
"""

import sys
import unicodedata
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

_WIDTH = 92  # with its indent and quotes, a line of the output has at most 100 columns
_SMALL_CAPITAL = "LATIN LETTER SMALL CAPITAL "
OURS = {
    "\u0138": "k",  # kra
    "\u0237": "j",  # dotless j
    "\u0185": "b",  # tone six
    "\u043f": "n",  # drawn like a small n, and read as one in a Latin word
    "\u03c4": "t",
    "\u03c7": "x",
    "\u03c9": "w",
    "\u056c": "l",
    "\u0967": "9",
}
"""
The table does not map these to ASCII, but people who read them in a terminal took them for ASCII.
"""

Table = dict[str, str]


def table_from_text(text: str) -> tuple[str, Table]:
    """
    Return the version, and the look-alike of each character: `SOURCE ; TARGET... ; TYPE # comment`.
    """
    version, found = "", {}
    for line in text.removeprefix("\ufeff").splitlines():
        if line.startswith("# Version:"):
            version = line.partition(":")[2].strip()
        fields = line.partition("#")[0].split(";")
        if len(fields) > 1:
            source, target = (
                "".join(chr(int(code, 16)) for code in field.split()) for field in fields[:2]
            )
            found[source] = target
    return version, found


def ascii_targets(table: Mapping[str, str]) -> Table:
    """Return characters that the table maps to ASCII text."""
    return {
        source: target
        for source, target in table.items()
        if not source.isascii() and target.isascii()
    }


def further_targets(table: Mapping[str, str]) -> Table:
    """Return the look-alikes of characters that the table omits or maps to a small capital."""
    small = {
        char: name.removeprefix(_SMALL_CAPITAL)
        for char, name in _named(_SMALL_CAPITAL)
        if len(name) == len(_SMALL_CAPITAL) + 1
    }
    like = {**small, **OURS}
    through = {
        source: "".join(like.get(char, char) for char in target) for source, target in table.items()
    }
    found = {
        source: target
        for source, target in {**through, **like}.items()
        if target.isascii() and not source.isascii()
    }
    return {
        source: target for source, target in found.items() if source not in ascii_targets(table)
    }


def module_from_text(raw: bytes) -> str:
    version, table = table_from_text(raw.decode())
    return "\n".join(_lines(version, sha256(raw).hexdigest(), table)) + "\n"


def _named(prefix: str) -> Iterator[tuple[str, str]]:
    for code in range(0x80, sys.maxunicode + 1):
        name = unicodedata.name(chr(code), "")
        if name.startswith(prefix):
            yield chr(code), name


def _lines(version: str, digest: str, table: Mapping[str, str]) -> Iterator[str]:
    yield '"""'
    yield "Characters that resemble ASCII text, by the text that people read. This file is data."
    yield ""
    yield (
        "Written by `python -m proof.generated_docs.confusables_data`; do not"
        " edit it by hand. The data is"
    )
    yield (
        "Unicode's confusables.txt, © Unicode, Inc., under Unicode-3.0"
        " (LICENSE-unicode.txt). It was taken"
    )
    yield (
        "from public copies, not from its publisher. Compared with"
        " confusable_homoglyphs 3.3.1: every"
    )
    yield (
        "character that it takes for ASCII is here too, and 5 of the 1472 that"
        " both take for one ASCII"
    )
    yield "character differ. Import it only when needed."
    yield (
        "The licence text equals that of cldr-core 48.0.0; its years are those of"
        " pyvider-cty 0.6.3."
    )
    yield '"""'
    yield ""
    yield "# fmt: off"
    yield f'UNICODE_VERSION = "{version}"'
    yield f'SOURCE_SHA256 = "{digest}"'
    yield ""
    yield from _group("ASCII", "Unicode's table maps these to ASCII text.", ascii_targets(table))
    yield from _group(
        "FURTHER",
        "Small capitals, letters that the table maps to them, and a few of ours.",
        further_targets(table),
    )


def _group(name: str, about: str, targets: Mapping[str, str]) -> Iterator[str]:
    by_target: dict[str, list[str]] = {}
    for source, target in sorted(targets.items()):
        by_target.setdefault(target, []).append(_escaped(source))
    yield f"{name} = {{"
    for target, sources in sorted(by_target.items()):
        pieces = list(_wrapped(sources))
        key = (
            '"' + target.replace("\\", "\\\\").replace('"', '\\"') + '"'
            if "'" in target or '"' not in target
            else f"'{target}'"
        )
        if len(pieces) == 1 and len(pieces[0]) + len(key) < _WIDTH:
            yield f'    {key}: "{pieces[0]}",'
        else:
            yield f"    {key}: ("
            yield from (f'        "{piece}"' for piece in pieces)
            yield "    ),"
    yield "}"
    yield f'"""{about}"""'
    if name == "ASCII":
        yield ""


def _wrapped(sources: list[str]) -> Iterator[str]:
    line = ""
    for source in sources:
        if len(line) + len(source) > _WIDTH - 8:
            yield line
            line = ""
        line += source
    yield line


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


if __name__ == "__main__":
    sys.stdout.write(module_from_text(Path(sys.argv[1]).read_bytes()))
