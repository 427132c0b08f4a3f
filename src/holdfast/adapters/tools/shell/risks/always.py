"""Programs with one effect, whatever their words are."""

from holdfast.adapters.tools.shell.risks.verbs import DATABASE, DELETES, DISK, ENDS, SENDS, SYSTEM
from holdfast.session.authority.plan import RiskKind

ALWAYS: dict[str, tuple[RiskKind, str]] = {
    **dict.fromkeys(("rm", "unlink", "srm", "trash-empty"), ("destructive", DELETES)),
    **dict.fromkeys(
        ("shred", "wipe"), ("destructive", "overwrites files so that nobody can read them again.")
    ),
    **dict.fromkeys(("truncate",), ("destructive", "cuts off the content of files.")),
    **dict.fromkeys(
        (
            "mkfs",
            "mke2fs",
            "mkswap",
            "fdisk",
            "sfdisk",
            "sgdisk",
            "gdisk",
            "parted",
            "wipefs",
            "blkdiscard",
            "lvremove",
            "vgremove",
            "pvremove",
            "badblocks",
            "hdparm",
        ),
        ("destructive", DISK),
    ),
    **dict.fromkeys(("kill", "pkill", "killall", "xkill", "fuser"), ("destructive", ENDS)),
    **dict.fromkeys(
        ("shutdown", "reboot", "halt", "poweroff"), ("destructive", "stops the machine.")
    ),
    **dict.fromkeys(("dropdb", "dropuser", "pg_resetwal"), ("destructive", DATABASE)),
    **dict.fromkeys(
        ("userdel", "groupdel", "deluser"), ("destructive", "deletes a user or a group.")
    ),
    **dict.fromkeys(
        ("sudo", "su", "doas", "pkexec", "runuser", "sudoedit"),
        ("privilege", "runs with the rights of another user."),
    ),
    **dict.fromkeys(
        (
            "chown",
            "chgrp",
            "setcap",
            "setfacl",
            "usermod",
            "useradd",
            "groupadd",
            "adduser",
            "addgroup",
            "passwd",
            "gpasswd",
            "chpasswd",
            "visudo",
            "mount",
            "umount",
            "insmod",
            "rmmod",
            "modprobe",
            "swapoff",
            "swapon",
            "update-alternatives",
            "ssh-copy-id",
        ),
        ("privilege", SYSTEM),
    ),
    **dict.fromkeys(
        ("nsenter", "chroot", "unshare", "setpriv"),
        ("privilege", "leaves the present confinement or makes another one."),
    ),
    **dict.fromkeys(
        ("sendmail", "mail", "mailx", "mutt", "telnet", "ftp", "lftp", "tftp"), ("upload", SENDS)
    ),
    **dict.fromkeys(
        ("at", "batch", "systemd-run"), ("runtime_code", "runs commands later, without a prompt.")
    ),
}
