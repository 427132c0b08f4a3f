"""Which commands a remembered approval may cover: only those whose bytes say what happens."""

from typing import Any

import pytest

from holdfast.adapters.tools.shell.parse import read_command
from holdfast.adapters.tools.shell.shell import Shell

READABLE = [
    "ls",
    "ls -la 'a b' \"c d\"",
    "cat < in.txt 2>&1",
    "ls >/dev/null 2>&1",
    "ls &> /dev/null",
    "grep -n x a.txt | sort | uniq -c",
    "test -d a && ls a || echo no; pwd",
    "find . -name x.py",
    "cd sub && ls",
    "sed -n 1,20p a.txt",
    "ls\npwd",
    "/usr/bin/ls",
    "ls -- -x",
    "< in.txt sort",
]
UNREADABLE = [
    # substitution, expansion, patterns, escapes
    "echo $(id)", "echo `id`", "cat <(ls)", "echo $HOME", "echo ${X:-y}", "echo $((1+1))", "rm *.log", "ls a?", "ls [ab]", "echo {a,b}", "l\\s", "echo $'x'",
    'echo "$X"', 'echo "a\\"b"', "ls ~root", "ls \\\n-l",
    # control flow, functions, background, here documents, assignments, comments
    "if true; then ls; fi", "for x in a; do ls; done", "while :; do ls; done", "case a in a) ls;; esac", "f() { ls; }; f", "(ls)", "{ ls; }", "! ls",
    "ls &", "ls & pwd", "cat <<E\nx\nE", "cat <<< x", "X=1 ls", "X=1", "LD_PRELOAD=./x.so ls", "export PATH=.", "ls # rm", "[[ -f x ]]", "ls |& cat", "",
    "ls '", "ls && ", "ls ;; pwd",
    # wrappers
    "env ls", "env -S 'sh -c id'", "/usr/bin/env ls", "sudo ls", "xargs rm", "nohup ls", "time ls", "timeout 5 ls", "nice ls", "setsid ls", "stdbuf -o0 ls",
    "watch ls", "ssh host ls", "eval ls", "exec ls", "command ls", "builtin echo", "source x", ". x", "trap ls EXIT", "alias l=ls", "set -x", "strace ls",
    "find . -exec rm {} +", "find . -execdir sh x", "find . -ok rm x", "find . -fprintf x y", "tar xf a --checkpoint=1 --checkpoint-action=exec=sh",
    "tar --to-command=sh -xf a", "tar -I sh -xf a", "tar -xIf sh a", "rsync -e sh a b", "git -c core.pager=sh log", "git --exec-path=. status", "git difftool",
    "git bisect run x", "git rebase --exec x", "git -C x status", "git log --ext-diff",
    "git fetch --upload-pack=x", "git", "git my-alias", "sort --compress-program=sh x",
    "split --filter=sh x", "rg --pre sh x", "sed -i s/a/b/e x", "sed e", "busybox sh",
    # interpreters and whatever runs what it reads
    "sh -c id", "bash x.sh", "dash x", "python x.py", "python3 -c 1", "python3.11 x", "perl -e 1", "perl5.36.0 -e 1", "node x.js", "awk 1 x", "gawk 1", "make",
    "npm run x", "pip install x", "docker run x", "vim x", "less x", "pytest", "/usr/bin/python3 x", "PYTHON3 x",
    # invisible characters and words that are not what they seem
    "ls\r", "ls\u00a0-l", "ls \u202e", "l\u200bs",
    # programs that run others, whatever their names; each was remembered once
    "ssh-agent ./x.sh", "choom -n 0 ./x.sh", "run-parts sub", "systemd-cat ./x.sh", "cc -wrapper ./x.sh,a x.c", "openssl dgst -engine ./x.so f",
    "git status", "git commit -m x", "git add a", "git fetch", "git diff", "git log", "ld.so ./x", "cp ~/a b", "tar -cf out.tar dir", "mkdir -p a", "touch a",
    # a redirection that writes, or opens a connection
    "echo done > out.txt", "cat a >> .bashrc", "ls >| x", "ls &> x", "ls > /dev/tcp/127.0.0.1/9", "cat < /dev/tcp/127.0.0.1/9", "ls >&x", "ls <&3", "ls 3<> x",
    "ls > /dev/nullx", "ls > /dev/null/../x", "ls 2>&-", "ls > /dev/null x", "ls >/dev/null --foo", "sort 2>&1 --compress-program=./x", "sort < a -o b",
    "> x ls", "> x A=1 ls", "ls; > x", "> x && ls", "cat ;&>x", " -x3> a && ls", "ls -l2>&1",
    "sort -o2>&1", "sort --compress-program=./x2>&1", "echo 0< in", "ls 2>/dev/null2>&1", "ls a>/dev/null",
    # options and operands that are not vetted, in every spelling
    "sort --compress-prog=./x a", "sort --comp ./x a", "sort -o x a", "sort -ro x a", "sort -rox a", "sort -T . a", "sort --output=x a",
    "sort a -o x", "uniq a b",
    "uniq -c a b", "uniq -w a b", "date -s x", "date 01010000", "hostname evil", "diff -l a b", "diff --paginate a b", "find . -delete",
    "find . -fls x", "find -files0-from x",
    "find . -name -exec", "find . '-exec' rm x", "sed -n 1,2w x", "sed -n 1p -i x", "sed -n 1p a -f b", "sed -ne 1p x", "sed -n '1p;1e' x",
    "tree -R", "tree -o x", "printf -v a x",
    "printf -v 'a[$(id)]' x", "test -v 'a[$(id)]'", "test a -a b", "type -f ls", "cd a b", "cd -P a", "ls --col", "ls --color never --x",
    "grep -f p a", "grep --file=p a",
    "hexdump -e x", "hexdump -f x a", "ps --x", "echo --x", "env -i ls", "printenv -x", "pwd a", "exit x", "date -f x", "wc --files0-from=x",
    "column -J x", "tail --pid=1 a",
    # names that only look like a leaf program
    "/tmp/ls", "./ls", "../bin/ls", "/usr/local/bin/ls", "/bin/../bin/ls", "//bin/ls", "bin/ls", "/usr/sbin/../bin/ls", "LS", "ls\u2010l", "\uff4c\uff53",
    # variables, functions, other builtins
    "PATH=. ls", "PATH+=:. ls", "a[0]=1 ls", "LD_PRELOAD=x ls", "ls() { id; }; ls", "function ls { id; }", "hash -p ./x ls",
    "enable -f ./x.so y", "exec -a ls ./x", "command -p ls",
    "shopt -s expand_aliases", "unset PATH", "declare PATH=.", "readonly PATH=.", "local x", "mapfile -C id -c 1", "read x", "kill 1", "umask 0",
    "ulimit -c 0", "bind x", "coproc ls",
    "echo ~", "echo a=~/x", "cat ~+/x", "ls ~/x", "echo a{b,c}", "ls -{a,l}", "[ -f x ]", "echo @(a|b)", "time -p ls", "! true", "ls -l$X", "ls ''*",
    # programs that may change, or are not there
    "./build.sh", "no-such-program-here x", "cd sub && ./x",
]  # fmt: skip


@pytest.mark.parametrize("command", READABLE)
def test_plain_commands_can_be_covered(place: Any, encode: Any, command: str) -> None:
    shell = Shell()
    assert shell.bind(shell.validate(encode(command=command)), place.scene()).memorable


@pytest.mark.parametrize("command", UNREADABLE)
def test_an_unreadable_command_is_never_remembered(place: Any, encode: Any, command: str) -> None:
    (place.workspace / "build.sh").write_text("#!/bin/sh\nls\n")
    (place.workspace / "build.sh").chmod(0o755)
    shell = Shell()
    if command:
        assert not shell.bind(shell.validate(encode(command=command)), place.scene()).memorable
    else:
        assert read_command(command).unreadable


@pytest.mark.parametrize("joint", [";", " && ", " | ", "\n", " || "])
def test_more_than_fifty_commands_are_not_read(joint: str) -> None:
    assert read_command(joint.join(["ls"] * 50)).unreadable is None
    assert read_command(joint.join(["ls"] * 51)).unreadable is not None


def test_a_program_by_another_name_is_still_that_program(place: Any, encode: Any) -> None:
    (place.workspace / "harmless").symlink_to("/bin/bash")
    shell = Shell()
    assert not shell.bind(
        shell.validate(encode(command=f"{place.workspace}/harmless x")), place.scene()
    ).memorable


def test_deep_nesting_is_read_without_recursion() -> None:
    assert read_command("(" * 5000 + "ls" + ")" * 5000).unreadable is not None
    assert read_command("$(" * 3000 + "ls" + ")" * 3000).unreadable is not None


@pytest.mark.parametrize(
    ("command", "is_readable"),
    [
        ("make test", True),
        ("git status && pytest -q", True),
        ("sh x.sh", True),
        ("sh -c 'touch x'", False),
        ("cat x | sh", False),
        ("python3 -c 'print(1)'", False),
        ("eval ls", False),
        ("echo $(date)", False),
    ],
)
def test_only_text_that_cannot_be_read_asks_for_a_second_look(
    place: Any, encode: Any, command: str, is_readable: bool
) -> None:
    """An ordinary command that cannot be remembered is not dangerous for that alone."""
    shell = Shell()
    binding = shell.bind(shell.validate(encode(command=command)), place.scene())
    assert (binding.readable, binding.memorable) == (is_readable, False)
