"""
Programs below /usr/src with various owners and modes, and what `system_paths` says of each.

`make` as root builds them, and copies this file and the module beside them. `judge` runs as any
user. It prints how many cases it judged, and fails at the first that is judged wrong.
"""

import os
import shutil
import sys
from pathlib import Path

BASE = Path("/usr/src")
CASES = {
    "plain/ls": True,
    "link_to_plain/ls": True,
    "linked/ls": True,
    "plain/missing": False,
    "program_of_nobody/ls": False,
    "program_for_all/ls": False,
    "program_for_group/ls": False,
    "folder_of_nobody/ls": False,
    "folder_for_all/ls": False,
    "folder_above_for_group/in/ls": False,
    "link_through_open_folder/ls": False,
    "link_out/ls": False,
}


def make() -> None:
    os.umask(0o022)
    for name in CASES:
        folder = (BASE / name).parent
        if folder.name != "link_to_plain" and not name.endswith("missing"):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy("/bin/ls", BASE / name)
            (BASE / name).chmod(0o755)
    (BASE / "link_to_plain").symlink_to("plain")
    os.chown(BASE / "program_of_nobody/ls", 65534, 65534)
    (BASE / "program_for_all/ls").chmod(0o757)
    (BASE / "program_for_group/ls").chmod(0o775)
    os.chown(BASE / "folder_of_nobody", 65534, 65534)
    (BASE / "folder_for_all").chmod(0o1777)
    (BASE / "folder_above_for_group").chmod(0o775)
    for name, target in {
        "linked/ls": "../plain/ls",
        "link_through_open_folder/ls": "../folder_for_all/../plain/ls",
        "link_out/ls": "/opt/ls",
    }.items():
        (BASE / name).unlink()
        (BASE / name).symlink_to(target)
    module = (
        Path(__file__).parents[3] / "src/holdfast/adapters/tools/shell/remembered/system_paths.py"
    )
    shutil.copy(module, BASE / "system_paths.py")
    shutil.copy(__file__, BASE / "cases.py")


def judge() -> None:
    sys.path.insert(0, str(BASE))
    from system_paths import why_not_system  # type: ignore[import-not-found]

    for name, expected in CASES.items():
        why = why_not_system(str(BASE / name))
        if (why is None) != expected:
            sys.exit(f"{name} as user {os.geteuid()}: {why}")
    sys.stdout.write(f"judged {len(CASES)}\n")


if __name__ == "__main__":
    {"make": make, "judge": judge}[sys.argv[1]]()
