"""
The filesystem that a home is on. `flock`, `fdatasync` and `rename` give the guarantees that we need
on local filesystems only, so network and FUSE filesystems are refused by name unless a setting
allows them.
"""

import ctypes
import os
from collections.abc import Callable

from holdfast.errors import Unusable

# From linux/magic.h and the filesystems' own headers.
UNSAFE = {
    0x6969: "NFS",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x517B: "SMB",
    0x65735546: "FUSE",
    0x01021997: "9P",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x73757245: "Coda",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x19830326: "BeeGFS",
    0x7461636F: "OCFS2",
    0x01161970: "GFS2",
}

MagicOf = Callable[[int], int | None]


def filesystem_magic(fd: int) -> int | None:
    """
    Return the kernel's number for the filesystem of a descriptor, or None without such a call.
    """
    try:
        fstatfs = ctypes.CDLL(None, use_errno=True).fstatfs
    except (OSError, AttributeError):
        return None
    buffer = (ctypes.c_long * 64)()  # struct statfs is 120 bytes; f_type is its first word
    if fstatfs(fd, ctypes.byref(buffer)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(buffer[0]) & 0xFFFFFFFF


def refuse_unsafe(fd: int, path: str, magic_of: MagicOf = filesystem_magic) -> None:
    name = UNSAFE.get(magic_of(fd) or 0)
    if name is not None:
        raise Unusable(
            f"{path} lies on a {name} filesystem, where locks and syncs don't keep our promises",
            code="unsafe_filesystem",
            hint="use a local disk, or set storage.allow_network_filesystem = true and give up the "
            "promises D1 and L1",
        )
