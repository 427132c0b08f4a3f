"""
Programs that a remembered approval never covers, as tables: those that run other programs, and those that run text they read.

A grant covers equal bytes of a command. That says what happens only if the bytes say it: `make`, `sh x` or `env y` mean whatever a
file or a later word means by then. The tables err on the side of asking.
"""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Run another program named in their words, or change how a later one runs.
WRAPPERS = _words(
    """
    . at batch builtin busybox bwrap chroot chrt command coproc cpulimit crontab daemonize dbus-run-session doas entr env eval exec
    fakeroot firejail flock gdb hyperfine ionice ld.so ltrace man nc ncat netcat nice nohup nsenter numactl parallel perf pkexec
    prlimit proot rsh runuser screen script setarch setpriv setsid socat source ssh sshpass start-stop-daemon stdbuf strace su sudo
    sudoedit systemctl systemd-run taskset tcpdump time timeout tmux torify torsocks toybox trap unbuffer unshare valgrind watch
    watchexec xargs xvfb-run
    alias bind complete declare enable export hash let local mapfile popd pushd read readarray readonly set shopt typeset unalias unset
    """
)
# Read text and run it: shells, languages, build tools, package managers, container tools, editors with a way out.
INTERPRETERS = _words(
    """
    ansible ansible-playbook apt apt-get ash awk bash bc bpftrace brew bun bundle cargo cmake composer conda csh dash dc deno dnf
    docker docker-compose dotnet dpkg ed elixir emacs erl ex expect fish flatpak g++ gawk gcc ghc ghci gmake go gradle groff guile
    helm irb java jjs jrunscript jshell julia just kotlin ksh kubectl latex less lua luajit m4 make mawk mksh more mvn mysql nano
    nasm nawk ninja nix nix-env nix-shell node nodejs npm npx nvim ocaml octave pacman pdflatex perl php pico pip pipenv pipx pnpm
    podman poetry posh powershell psql puppet pwsh pypy pytest python qemu r rake rbash rlwrap rpm rscript ruby runghc rustc rview
    rvim sbt scala scons sh snap sqlite3 swift swipl task tcl tclsh tcsh terraform tex tox troff ts-node tsx uv uvx vi view vim
    vimdiff wish xelatex yarn yash yum zsh zypper
    """
)
# Options that make an otherwise plain program run something. Matched as a prefix of a word; one letter also inside joined flags.
RUNNING_OPTIONS: dict[str, tuple[str, ...]] = {
    "find": ("-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fls"),
    "fd": ("-x", "-X", "--exec"),
    "fdfind": ("-x", "-X", "--exec"),
    "tar": ("--checkpoint", "--to-command", "-I", "--use-compress", "--rsh-command", "--rmt-command", "-F", "--info-script", "--new-volume"),
    "bsdtar": ("--use-compress", "-I"),
    "rsync": ("-e", "--rsh", "--rsync-path", "-M", "--remote-option", "--daemon"),
    "scp": ("-S", "-o", "-F", "-D"),
    "sftp": ("-S", "-o", "-F", "-D", "-b"),
    "sort": ("--compress-prog",),
    "split": ("--filter",),
    "zip": ("-T", "--unzip-command"),
    "curl": ("-K", "--config", "-q"),
    "wget": ("-e", "--execute", "--use-askpass", "--config"),
    "rg": ("--pre", "--hostname-bin"),
    "ctags": ("--options",),
    "cpio": ("--rsh-command",),
    "openssl": ("-engine", "-provider"),
    "hg": ("--config",),
    "svn": ("--config", "--diff-cmd", "--editor-cmd"),
}
# Of git, only these, and none of them with an option that names a program. Others run hooks, editors, filters or helpers of a file's choice.
GIT_SUBCOMMANDS = _words(
    "add blame branch checkout commit diff fetch log ls-files merge-base pull push remote restore rev-parse show stash status switch tag"
)
GIT_OPTIONS = ("-c", "--config", "--exec", "--upload-pack", "--receive-pack", "--ext-diff", "--textconv", "--git-dir", "--work-tree", "-O", "--open")
PLAIN_SED = re.compile(r"[0-9]*,?[0-9$]*p\Z")

_VERSIONED = re.compile(r"(.*?[A-Za-z+])[-.]?[0-9][0-9.]*[a-z]?\Z")


def why_not_covered(words: tuple[str, ...], real_name: str | None) -> str | None:
    """Why an equal command may do something else next time; None if its words say it all. `real_name` is the program behind links."""
    name = _base(words[0])
    for seen in {name, _base(real_name or name)}:
        for spelled in {seen, _unversioned(seen)}:
            if spelled in WRAPPERS:
                return f"{seen} runs or changes other commands"
            if spelled in INTERPRETERS or spelled.startswith("ld-"):
                return f"{seen} runs text or files that may change"
    if name == "git":
        return _why_not_git(words[1:])
    if name == "sed" and not (len(words) > 2 and words[1] == "-n" and PLAIN_SED.match(words[2]) and words[3:4] != ("-f",)):  # noqa: PLR2004
        return "sed can run commands"
    for option in RUNNING_OPTIONS.get(name, ()):
        for word in words[1:]:
            if word.startswith(option) or (_is_letter(option) and _in_flags(option, word)):
                return f"{name} {option} runs or changes something else"
    return None


def _why_not_git(words: tuple[str, ...]) -> str | None:
    if not words or words[0] not in GIT_SUBCOMMANDS:
        return "git runs programs that options, aliases or hooks name"
    if any(word.startswith(GIT_OPTIONS) for word in words[1:]):
        return "git runs programs that this option names"
    return None


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1].lower()


def _unversioned(name: str) -> str:
    match = _VERSIONED.match(name)
    return match.group(1) if match else name


def _is_letter(option: str) -> bool:
    return len(option) == 2  # noqa: PLR2004  "-e"


def _in_flags(option: str, word: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and option[1] in word[1:]
