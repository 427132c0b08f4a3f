"""
The leaf programs: only commands made of them can be covered by a remembered approval.

A leaf program reads files and prints. It starts no other program, loads no code and writes no file,
and neither its options nor its configuration can make it do so. A program or an option that could
do any of that is not listed, even if few people know it (`diff -l` starts `pr`, `uniq a b` writes
b, `tree -R` starts itself, `printf -v` runs the content of a subscript).

Add a program only after reading its manual for: options that name a program, a settings file, an
output file or a pager; operands that are written; variables and files that it reads unasked.
"""

import re

import msgspec

ANY = 1 << 16  # no limit on operands


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """
    The vetted words of one program.

    `flags` are letters without a value, and `valued` are letters with one. `longs` are whole long
    options. `settings` are long options that are written `--name=value`. `count` allows `-20`.
    """

    flags: str = ""
    valued: str = ""
    longs: frozenset[str] = frozenset()
    settings: frozenset[str] = frozenset()
    count: bool = False
    operands_max: int = ANY
    operand: str = r"(?s).*"  # every operand must match it as a whole


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _leaf(
    flags: str = "",
    valued: str = "",
    longs: str = "",
    settings: str = "",
    *,
    count: bool = False,
    operands_max: int = ANY,
    operand: str = r"(?s).*",
) -> Leaf:
    return Leaf(
        flags=flags,
        valued=valued,
        longs=_words(longs),
        settings=_words(settings),
        count=count,
        operands_max=operands_max,
        operand=operand,
    )


_SUM = _leaf("bctwz", longs="binary text check quiet status strict warn zero tag")

LEAVES: dict[str, Leaf] = {
    # Listing files and folders.
    "ls": _leaf(
        "1AaBbCcdFfGghHikLlmNnopQqRrSstUuvXxZ",
        "ITw",
        "all almost-all author classify color directory full-time group-directories-first"
        " human-readable inode no-group numeric-uid-gid recursive reverse si size",
        "color format hide ignore indicator-style sort time time-style width",
    ),
    "tree": _leaf(
        "adfgilnpqrstuvxACDFNS",
        "ILP",
        "dirsfirst du noreport prune si",
        "charset sort",
    ),
    "du": _leaf(
        "0abchHklLmPsSx",
        "d",
        "all apparent-size bytes human-readable one-file-system separate-dirs si summarize total",
        "exclude max-depth threshold time time-style block-size",
    ),
    "df": _leaf(
        "ahHiklPT",
        "tx",
        "all human-readable inodes local no-sync output portability print-type si total",
        "block-size exclude-type output type",
    ),
    "stat": _leaf("fLt", "c", "dereference file-system terse", "format printf"),
    "realpath": _leaf(
        "eLmPqsz",
        "",
        "canonicalize-existing canonicalize-missing logical no-symlinks physical quiet strip",
        "relative-base relative-to",
    ),
    "readlink": _leaf("efmnqsvz", "", "canonicalize no-newline zero"),
    "basename": _leaf("az", "s", "multiple zero", "suffix"),
    "dirname": _leaf("z", "", "zero"),
    # Printing files.
    "cat": _leaf(
        "AbeEnstTuv",
        "",
        "number number-nonblank show-all show-ends show-nonprinting show-tabs squeeze-blank",
    ),
    "head": _leaf("qvz", "nc", "quiet silent verbose", "bytes lines", count=True),
    "tail": _leaf(
        "fFqvz", "ncs", "follow quiet retry silent verbose", "bytes follow lines", count=True
    ),
    "tac": _leaf("br", "s"),
    "rev": _leaf(),
    "nl": _leaf("p", "bdfhilnsvw"),
    "wc": _leaf("clLmw", "", "bytes chars lines max-line-length words"),
    "od": _leaf("abcdfiloshvx", "AjNtw"),
    "hexdump": _leaf("bcCdovx", "ns"),
    "md5sum": _SUM,
    "sha1sum": _SUM,
    "sha224sum": _SUM,
    "sha256sum": _SUM,
    "sha384sum": _SUM,
    "sha512sum": _SUM,
    "b2sum": _SUM,
    "cksum": _leaf(),
    "sum": _leaf("rs"),
    # Searching and comparing.
    "grep": _leaf(
        "abcEFGhHiIlLnoPqrRsUvwxyzZ",
        "ABCem",
        "basic-regexp byte-offset color colour count dereference-recursive extended-regexp"
        " files-with-matches files-without-match fixed-strings ignore-case initial-tab"
        " invert-match line-buffered line-number line-regexp no-filename no-messages null"
        " only-matching perl-regexp quiet recursive silent text with-filename word-regexp",
        "after-context before-context binary-files color colour context exclude exclude-dir "
        "include max-count regexp",
        count=True,
    ),
    "diff": _leaf(
        "aBbcdeEinNpqrstTuwyZ",
        "CUWx",
        "brief color expand-tabs ignore-all-space ignore-blank-lines ignore-case"
        " ignore-space-change minimal new-file recursive report-identical-files"
        " side-by-side strip-trailing-cr suppress-common-lines text unified",
        "color context exclude unified width",
    ),
    "cmp": _leaf("bls", "in", "print-bytes quiet silent verbose", "bytes ignore-initial"),
    "comm": _leaf("123iz", "", "check-order nocheck-order total", "output-delimiter"),
    # Text between pipes.
    "sort": _leaf(
        "bcCdfghiMmnRrsuVz",
        "kt",
        "general-numeric-sort human-numeric-sort ignore-case numeric-sort reverse stable unique "
        "version-sort zero-terminated",
        "field-separator key",
    ),
    "uniq": _leaf(
        "cdDiuz",
        "fsw",
        "all-repeated count ignore-case repeated unique",
        "skip-chars skip-fields",
        operands_max=1,
    ),
    "cut": _leaf(
        "nsz",
        "bcdf",
        "complement only-delimited zero-terminated",
        "bytes characters delimiter fields output-delimiter",
    ),
    "tr": _leaf("cCdst", "", "complement delete squeeze-repeats truncate-set1"),
    "paste": _leaf("sz", "d", "serial", "delimiters"),
    "join": _leaf("iz", "12aejotv"),
    "fold": _leaf("bs", "w", "bytes spaces", "width"),
    "fmt": _leaf("cstu", "w"),
    "expand": _leaf("i", "t"),
    "unexpand": _leaf("a", "t"),
    "column": _leaf("txe", "cos", "table", "output-separator separator"),
    "seq": _leaf("w", "fs", operands_max=3, operand=r"-?[0-9.]+"),
    "numfmt": _leaf("z", "d", "", "from to from-unit to-unit field suffix padding round"),
    # Facts about the machine and the user. `date` and `hostname` set with operands.
    "date": _leaf(
        "IRu", "dr", "rfc-email utc universal", "date iso-8601 rfc-3339", operand=r"\+.*"
    ),
    "hostname": _leaf("fs", operands_max=0),
    "uname": _leaf("aimnoprsv", longs="all machine kernel-name kernel-release", operands_max=0),
    "arch": _leaf(operands_max=0),
    "nproc": _leaf(longs="all", operands_max=0),
    "uptime": _leaf("ps", longs="pretty since", operands_max=0),
    "free": _leaf("bghklmtw", longs="human mebi gibi kibi total wide", operands_max=0),
    "ps": _leaf("AadeFfHjLly", "Copu", "forest", "sort", operand=r"[auxfwlej]+|[0-9]+"),
    "pgrep": _leaf("acfilnovx", "GPUu", operands_max=1),
    "whoami": _leaf(operands_max=0),
    "id": _leaf("Ggnruz", longs="group groups name real user"),
    "groups": _leaf(),
    "printenv": _leaf("0"),
    "sleep": _leaf(operand=r"[0-9.]+[smhd]?"),
    # Builtins of the shell: they are part of the interpreter, whose path is checked too.
    "echo": _leaf("eEn"),
    "printf": _leaf(),
    "pwd": _leaf("LP", operands_max=0),
    "true": _leaf(operands_max=0),
    "false": _leaf(operands_max=0),
    ":": _leaf(operands_max=0),
    "type": _leaf("apPt"),
    "cd": _leaf(operands_max=1),
    "exit": _leaf(operands_max=1, operand=r"[0-9]+"),
}
BUILTINS = _words("echo printf pwd true false : type cd exit test")

# `test` and `find` have grammars of their own, and `sed` has a language: see
# `remembered/programs.py`.
TEST_UNARY = frozenset("-" + letter for letter in "bcdefghkLnNOGprsSuwxz")
TEST_BINARY = _words("= == != -eq -ne -gt -ge -lt -le -nt -ot -ef")
FIND_ALONE = _words(
    "( ) ! , -a -and -o -or -not -daystart -depth -empty -executable -false -follow -H -L -ls"
    " -mount -nogroup -noleaf -nouser -P -print -print0 -prune -quit -readable -true -writable"
    " -xdev"
)
FIND_VALUED = _words(
    "-amin -anewer -atime -cmin -cnewer -ctime -fstype -gid -group -iname -inum -ipath -iregex"
    " -links -lname -maxdepth -mindepth -mmin -mtime -name -newer -path -perm -printf -regex"
    " -regextype -samefile -size -type -uid -used -user -wholename -xtype"
)
FIND_VALUE = re.compile(r"(?s)[^-].*|-[0-9].*|-[ugoarwxX0-7,=+]+|")
SED_SCRIPT = re.compile(r"(?:[0-9]+(?:,(?:\+?[0-9]+|\$))?|\$)p(?:;(?:[0-9]+(?:,[0-9]+)?|\$)p)*")
