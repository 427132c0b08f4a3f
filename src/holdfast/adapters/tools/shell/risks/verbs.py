"""
The table of programs whose verbs and options delete, overwrite, take privileges or send data.

A row holds if its verb matches the words that are not options, and its option matches one option.
Options that take a value before the verb (`git -C DIR`) are removed first. The text completes the
sentence "`git clean` ...". It names the effect, because the approver reads it beside the command.
"""

from typing import NamedTuple

from holdfast.session.authority.plan import RiskKind

_LOST = "and they cannot be brought back"
DELETES = f"deletes files, {_LOST}."
_REMOTE = "deletes it on the service. This cannot be undone."
_HISTORY = "throws away commits or changes that exist nowhere else."
SENDS = "sends data to another machine."
_PUBLISHES = "publishes to the world. This cannot be taken back."
ENDS = "ends processes. Their unsaved work is lost."
_EMPTIES = "replaces the file by an empty one."
DISK = "overwrites a disk or a file system."
SYSTEM = "changes the system, with rights beyond the user's own."
DATABASE = "deletes data from a database."


class Verb(NamedTuple):
    """`words` and `option` are regular expressions; None stands for anything."""

    kind: RiskKind
    text: str
    words: str | None = None
    option: str | None = None
    unless: str | None = None  # an option that takes the effect away


VALUED: dict[str, frozenset[str]] = {
    "git": frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"}),
    "kubectl": frozenset({"-n", "--namespace", "--context", "--kubeconfig", "--cluster", "--user"}),
    "helm": frozenset({"-n", "--namespace", "--kube-context", "--kubeconfig"}),
    "docker": frozenset({"-H", "--host", "--context", "-f", "--file", "-p"}),
    "docker-compose": frozenset({"-f", "--file", "-p", "--project-name"}),
    "aws": frozenset({"--profile", "--region", "--endpoint-url", "--output", "--query"}),
    "gcloud": frozenset({"--project", "--zone", "--region", "--account", "--format"}),
    "az": frozenset({"--subscription", "-g", "--resource-group", "-n", "--name"}),
    "terraform": frozenset({"-chdir"}),
    "gh": frozenset({"-R", "--repo"}),
    "npm": frozenset({"--prefix", "-C", "--registry", "-w", "--workspace"}),
    "redis-cli": frozenset({"-h", "-p", "-a", "-n", "-u", "--user", "--pass"}),
    "systemctl": frozenset({"-H", "--host", "-M", "--machine"}),
}
"""Options whose value is the next word: without them the verb comes first."""
VALUED["podman"] = VALUED["docker"]
VALUED["tofu"] = VALUED["terraform"]

_FORCE = r"-[A-Za-z]*f[A-Za-z]*|--force(=.*)?"
_CONTAINERS = (
    Verb(
        "destructive", "deletes containers, images or volumes.", r"(\w+ )?(rm|rmi|prune|remove)\b"
    ),
    Verb(
        "destructive",
        "deletes volumes with their data.",
        r"compose down\b",
        r"-v|--volumes|--rmi.*",
    ),
    Verb("destructive", ENDS, r"(container |compose )?kill\b"),
    Verb("upload", SENDS, r"(image |compose )?push\b"),
    Verb(
        "privilege",
        "gives the container the rights of the machine.",
        r"run\b|exec\b",
        "--privileged|--pid=host|--cap-add=.*",
    ),
)
_PACKAGES = (
    Verb(
        "destructive",
        "removes software from the system.",
        r"(remove|purge|autoremove|erase|del|uninstall)\b",
    ),
    Verb(
        "privilege",
        SYSTEM,
        r"(install|upgrade|dist-upgrade|full-upgrade|update|add|remove|purge|autoremove|erase|del|downgrade|reinstall)\b",
    ),
)
_CLOUD_DELETES = r"(.* )?(delete|destroy|remove|purge|terminate|reset)(-\S+|:\S+)?( |$)"

_FETCHED = "downloads a program and runs it."
_DOWNLOADERS = (
    Verb("runtime_code", _FETCHED, r"@?[\w./-]+@\S+"),
    Verb("runtime_code", _FETCHED, r"\S+", "-y|--yes|-p|--package(=.*)?"),
)

VERBS: dict[str, tuple[Verb, ...]] = {
    "git": (
        Verb(
            "destructive",
            f"deletes files that Git does not keep, {_LOST}.",
            r"clean\b",
            _FORCE,
            r"-[a-z]*n[a-z]*|--dry-run",
        ),
        Verb("destructive", _HISTORY, r"reset\b", "--hard|--merge"),
        Verb("destructive", _HISTORY, r"checkout (\S+ )*-- |checkout (\S+ )?(\.|--)( |$)"),
        Verb("destructive", _HISTORY, r"checkout\b|switch\b", _FORCE + "|--discard-changes"),
        Verb("destructive", _HISTORY, r"restore\b", unless="--staged|-S"),
        # `-d` deletes only a branch that is merged. `-D` is `-d` with force.
        Verb("destructive", _HISTORY, r"branch\b", "-[A-Za-z]*D[A-Za-z]*"),
        Verb("destructive", _HISTORY, r"branch\b", _FORCE),
        Verb("destructive", _HISTORY, r"tag\b", "-d|--delete"),
        Verb("destructive", _HISTORY, r"stash (drop|clear)\b"),
        Verb(
            "destructive", _HISTORY, r"(reflog (expire|delete)|filter-branch|filter-repo|prune)\b"
        ),
        Verb("destructive", _HISTORY, r"gc\b", r"--prune(=.*)?"),
        Verb("destructive", _HISTORY, r"update-ref\b", "-d"),
        Verb("destructive", DELETES, r"worktree remove\b|submodule deinit\b", _FORCE),
        Verb("destructive", DELETES, r"rm\b", unless="--cached|-n|--dry-run"),
        Verb("destructive", _REMOTE, r"push (.* )?:\S+"),
        Verb("destructive", _REMOTE, r"push\b", "--delete|-d|--prune|--mirror"),
        Verb(
            "force_push",
            "can replace the history on the server. Commits of other people can be lost.",
            r"push\b",
            rf"{_FORCE}|--force-with-lease(=.*)?|--force-if-includes|--mirror",
        ),
        Verb(
            "force_push",
            "can replace the history on the server. Commits of other people can be lost.",
            r"push (.* )?\+\S+",
        ),
        Verb("upload", SENDS, r"push (.* )?([a-z+]+://|[\w.-]+@[\w.-]+:)\S+"),
        Verb(
            "outside",
            "changes Git's settings outside the workspace.",
            r"config (?!get |list)\S+ .",
            "--global|--system",
        ),
        Verb(
            "runtime_code",
            "lets later Git commands run a program.",
            r"config (.* )?(alias\.\S+|core\.(hookspath|sshcommand|pager|editor|fsmonitor)) .",
        ),
    ),
    "hg": (
        Verb("destructive", _HISTORY, r"(strip|purge|update|revert)\b", r"-C|--clean|--all|-a"),
        Verb("destructive", _HISTORY, r"(strip|purge)\b"),
    ),
    "svn": (Verb("destructive", _HISTORY, r"(revert|delete|rm)\b"),),
    "docker": _CONTAINERS,
    "podman": _CONTAINERS,
    "nerdctl": _CONTAINERS,
    "docker-compose": (
        Verb("destructive", "deletes volumes with their data.", r"down\b", r"-v|--volumes|--rmi.*"),
        Verb("destructive", "deletes containers.", r"rm\b"),
        Verb("destructive", ENDS, r"kill\b"),
    ),
    "kubectl": (
        Verb("destructive", "deletes objects of the cluster.", r"(delete|drain)\b"),
        Verb(
            "destructive",
            "replaces objects of the cluster by deleting them.",
            r"replace\b",
            "--force",
        ),
        Verb("destructive", "stops every instance.", r"scale\b", r"--replicas=0"),
        Verb("destructive", "deletes objects of the cluster.", r"apply\b", "--prune(=true)?"),
        Verb(
            "privilege",
            "changes who may do what in the cluster.",
            r"create (cluster)?role(binding)?\b",
        ),
        Verb("upload", SENDS, r"cp \S+ \S*:"),
    ),
    "helm": (
        Verb("destructive", "deletes a release and its objects.", r"(uninstall|delete|del)\b"),
        Verb("upload", SENDS, r"push\b"),
    ),
    "terraform": (
        Verb(
            "destructive", "deletes infrastructure.", r"(destroy|state rm|workspace delete|taint)\b"
        ),
        Verb(
            "destructive",
            "changes infrastructure without showing the changes first.",
            r"apply\b",
            "-{1,2}(auto-approve|destroy)(=true)?",
        ),
    ),
    "terragrunt": (Verb("destructive", "deletes infrastructure.", r"(run-all )?destroy\b"),),
    "pulumi": (
        Verb("destructive", "deletes infrastructure.", r"(destroy|stack rm|state delete)\b"),
        Verb(
            "destructive",
            "changes infrastructure without showing the changes first.",
            r"up\b",
            "-y|--yes|-f|--skip-preview",
        ),
    ),
    "vagrant": (Verb("destructive", "deletes virtual machines.", r"(destroy|box remove)\b"),),
    "cdk": (Verb("destructive", "deletes infrastructure.", r"destroy\b"),),
    "serverless": (Verb("destructive", "deletes infrastructure.", r"remove\b"),),
    "aws": (
        Verb("destructive", _REMOTE, r"s3 (rm|rb|mv)\b"),
        Verb("destructive", _REMOTE, r"s3 sync\b", "--delete"),
        Verb(
            "destructive",
            _REMOTE,
            r"\S+ (delete|terminate|remove|purge|deregister|destroy|reset)-?\S*",
        ),
        Verb("upload", SENDS, r"s3 (cp|mv|sync) (?!s3:)\S+ s3:"),
        Verb(
            "upload",
            SENDS,
            r"(s3api put-object|lambda (update-function-code|invoke)|ecr .*push)\b",
        ),
        Verb(
            "privilege",
            "changes who may do what in the account.",
            r"iam (attach|put|create|add|update)-\S*",
        ),
    ),
    "gsutil": (
        Verb("destructive", _REMOTE, r"(rm|rb|mv)\b"),
        Verb("destructive", _REMOTE, r"rsync\b", "-[a-z]*d[a-z]*"),
        Verb("upload", SENDS, r"(cp|rsync|mv) (\S+ )*gs:\S+$"),
    ),
    "gcloud": (
        Verb("destructive", _REMOTE, _CLOUD_DELETES),
        Verb("privilege", "changes who may do what in the project.", r".*add-iam-policy-binding"),
        Verb("upload", SENDS, r"(storage cp|compute scp) (?!gs:)"),
    ),
    "az": (
        Verb("destructive", _REMOTE, _CLOUD_DELETES),
        Verb("upload", SENDS, r"storage blob upload.*"),
        Verb("privilege", "changes who may do what in the account.", r"role assignment create"),
    ),
    "heroku": (
        Verb("destructive", _REMOTE, r"(\S*:(destroy|reset|delete|remove|wipe)|destroy)\b"),
    ),
    "fly": (Verb("destructive", _REMOTE, _CLOUD_DELETES),),
    "flyctl": (Verb("destructive", _REMOTE, _CLOUD_DELETES),),
    "doctl": (Verb("destructive", _REMOTE, _CLOUD_DELETES),),
    "gh": (
        Verb("destructive", _REMOTE, r"\S+ (delete|archive|remove)\b"),
        Verb("destructive", _REMOTE, r"api\b", "-XDELETE|--method=DELETE"),
        Verb("destructive", _REMOTE, r"pr (merge|close)\b", "-d|--delete-branch"),
        Verb("upload", _PUBLISHES, r"(gist create|release (create|upload))\b"),
    ),
    "rclone": (
        Verb("destructive", _REMOTE, r"(delete|deletefile|purge|rmdir|rmdirs|cleanup|dedupe)\b"),
        Verb(
            "destructive",
            "deletes at the destination whatever the source lacks.",
            r"(sync|move|moveto|bisync)\b",
        ),
        Verb("upload", SENDS, r"(copy|copyto|sync|move|moveto|bisync|rcat) (\S+ )*\S+:\S*$"),
    ),
    "npm": (
        Verb("upload", _PUBLISHES, r"publish\b"),
        Verb(
            "destructive",
            "takes a published package away from everybody.",
            r"(unpublish|deprecate)\b",
        ),
        Verb(
            "outside",
            "installs outside the workspace.",
            r"(install|i|uninstall|update|link)\b",
            "-g|--global",
        ),
    ),
    **dict.fromkeys(("npx", "bunx", "pnpx", "uvx"), _DOWNLOADERS),
    "deno": (Verb("runtime_code", _FETCHED, r"(run )?https?://"),),
    "go": (Verb("runtime_code", _FETCHED, r"run \S+@"),),
    **dict.fromkeys(
        ("pip", "pip3"),
        (
            Verb(
                "outside",
                "installs outside the workspace.",
                r"(install|uninstall)\b",
                "--user|--break-system-packages",
            ),
        ),
    ),
    "pipx": (Verb("runtime_code", _FETCHED, r"run\b"),),
    "cargo": (
        Verb("upload", _PUBLISHES, r"publish\b"),
        Verb("destructive", "takes a published version away.", r"yank\b"),
        Verb("outside", "installs outside the workspace.", r"install\b"),
    ),
    "twine": (Verb("upload", _PUBLISHES, r"upload\b"),),
    "poetry": (Verb("upload", _PUBLISHES, r"publish\b"),),
    "uv": (Verb("upload", _PUBLISHES, r"publish\b"),),
    "gem": (
        Verb("upload", _PUBLISHES, r"push\b"),
        Verb("destructive", "takes a published version away.", r"yank\b"),
    ),
    "make": (Verb("outside", "installs outside the workspace.", r"(.* )?install\b"),),
    "apt": _PACKAGES,
    "apt-get": _PACKAGES,
    "yum": _PACKAGES,
    "dnf": _PACKAGES,
    "apk": _PACKAGES,
    "zypper": _PACKAGES,
    "snap": _PACKAGES,
    "pacman": (
        Verb("destructive", "removes software from the system.", None, "-R.*"),
        Verb("privilege", SYSTEM, None, "-[SRU].*"),
    ),
    "dpkg": (
        Verb("destructive", "removes software from the system.", None, "-r|-P|--remove|--purge"),
        Verb("privilege", SYSTEM, None, "-i|--install|-r|-P|--remove|--purge"),
    ),
    "systemctl": (
        Verb(
            "destructive",
            "stops a service of the machine.",
            r"(stop|disable|mask|kill|isolate|poweroff|reboot|halt)\b",
        ),
        Verb(
            "privilege",
            SYSTEM,
            r"(start|restart|reload|enable|daemon-reload|edit|unmask|set-\S+)\b",
        ),
    ),
    "service": (Verb("privilege", SYSTEM, r"\S+ (start|stop|restart|reload)\b"),),
    "crontab": (
        Verb("destructive", "deletes all scheduled commands of the user.", None, "-[a-z]*r"),
        Verb("runtime_code", "schedules commands that run later, without a prompt.", r"\S+|-$"),
    ),
    "rsync": (
        Verb(
            "destructive",
            "deletes at the destination whatever the source lacks.",
            None,
            "--delete.*|--remove-source-files|--del",
        ),
    ),
    "find": (
        Verb("destructive", DELETES, None, "-delete"),
        Verb("destructive", "overwrites files.", None, "-fprint.*|-fls"),
    ),
    "dd": (Verb("destructive", "overwrites the file or disk after `of=`.", r"(.* )?of="),),
    "tar": (Verb("destructive", DELETES, None, "--remove-files"),),
    "restic": (Verb("destructive", "deletes backups.", r"(forget|prune)\b"),),
    "borg": (Verb("destructive", "deletes backups.", r"(delete|prune|compact)\b"),),
    "bq": (
        Verb("destructive", DATABASE, r"rm\b"),
        Verb("upload", SENDS, r"load\b"),
    ),
    "mv": (Verb("destructive", f"moves files to /dev/null, {_LOST}.", r".+ /dev/null$"),),
    "cp": (Verb("destructive", _EMPTIES, r"/dev/null \S+"),),
    "install": (Verb("destructive", _EMPTIES, r"/dev/null \S+"),),
    "zfs": (Verb("destructive", DISK, r"(destroy|rollback)\b"),),
    "zpool": (Verb("destructive", DISK, r"(destroy|labelclear|remove|create)\b"),),
    "btrfs": (Verb("destructive", DISK, r"(subvolume delete|device remove|device delete)\b"),),
    "cryptsetup": (
        Verb("destructive", DISK, r"(luksFormat|luksErase|erase|luksKillSlot|reencrypt)\b"),
    ),
    "mdadm": (Verb("destructive", DISK, None, "--zero-superblock|--stop|--remove|--create"),),
    "init": (Verb("destructive", "stops the machine.", r"[06]\b"),),
    "telinit": (Verb("destructive", "stops the machine.", r"[06]\b"),),
    "history": (Verb("destructive", "deletes the history of commands.", None, "-[a-z]*c[a-z]*"),),
    "journalctl": (Verb("destructive", "deletes system logs.", None, "--vacuum.*"),),
    "gpg": (Verb("destructive", "deletes keys.", None, "--delete-.*"),),
    "tmux": (Verb("destructive", ENDS, r"kill-\S+"),),
    "redis-cli": (
        Verb(
            "destructive",
            DATABASE,
            r"(?i:(flushall|flushdb|del|unlink|shutdown|config set|script flush)\b)",
        ),
    ),
    "pg_restore": (Verb("destructive", DATABASE, None, "-[a-z]*c[a-z]*|--clean"),),
    "mysqladmin": (Verb("destructive", DATABASE, r"(.* )?(drop|shutdown)\b"),),
    "rabbitmqctl": (
        Verb("destructive", DATABASE, r"(reset|force_reset|delete_\S+|purge_queue|stop\S*)\b"),
    ),
    "kafka-topics": (Verb("destructive", DATABASE, None, "--delete"),),
    "kafka-topics.sh": (Verb("destructive", DATABASE, None, "--delete"),),
    "etcdctl": (Verb("destructive", DATABASE, r"(del|member remove|defrag)\b"),),
    "consul": (Verb("destructive", DATABASE, r"(kv delete|leave|force-leave)\b"),),
    "vault": (Verb("destructive", DATABASE, r"(.* )?(delete|destroy|disable|revoke)\b"),),
    "rails": (Verb("destructive", DATABASE, r"db:(drop|reset|purge|truncate_all|schema:load)\S*"),),
    "rake": (Verb("destructive", DATABASE, r"db:(drop|reset|purge|truncate_all|schema:load)\S*"),),
    "manage.py": (Verb("destructive", DATABASE, r"(flush|reset_db|sqlflush)\b"),),
    "artisan": (Verb("destructive", DATABASE, r"(migrate:(fresh|reset|refresh)|db:wipe)\b"),),
    "prisma": (
        Verb("destructive", DATABASE, r"migrate reset\b"),
        Verb("destructive", DATABASE, r"db push\b", "--force-reset|--accept-data-loss"),
    ),
    "alembic": (Verb("destructive", DATABASE, r"downgrade\b"),),
    "sysctl": (
        Verb("privilege", SYSTEM, None, "-w|-p.*|--system"),
        Verb("privilege", SYSTEM, r"\S+="),
    ),
    "ip": (Verb("privilege", SYSTEM, r"\S+ (set|add|change|replace|del|delete|flush)\b"),),
    "ufw": (Verb("privilege", SYSTEM, r"(enable|disable|allow|deny|delete|reset|reject)\b"),),
    "iptables": (
        Verb("destructive", "removes rules of the firewall.", None, "-[FXD]|--flush"),
        Verb("privilege", SYSTEM, None, "-[AIDFXPR]|--(append|insert|flush).*"),
    ),
    "nft": (
        Verb("destructive", "removes rules of the firewall.", r"(delete|destroy|flush)\b"),
        Verb("privilege", SYSTEM, r"(add|delete|flush|insert|create)\b"),
    ),
    "chmod": (
        Verb(
            "privilege",
            "lets everybody write, or lets a file run with its owner's rights.",
            r"\d?[0-7]*7[0-7]*[2367]\b|0?777\b|[2467][0-7]{3}\b|\S*[ugoa]*\+\S*s|o\+\S*w|a\+\S*w",
        ),
        Verb(
            "privilege",
            "changes the permissions of a whole folder.",
            None,
            "-[A-Za-z]*R[A-Za-z]*|--recursive",
        ),
    ),
    "ssh-keygen": (Verb("destructive", "removes a known key.", None, "-R"),),
    "dbus-send": (Verb("privilege", SYSTEM, None, "--system"),),
    "ncat": (Verb("upload", SENDS, r"\S+ \d+"),),
}
