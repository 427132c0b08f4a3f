"""One process of one framework: `python -m proof.frameworks_alone.step MODULE STEP FOLDER`."""

import asyncio
import json
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path


def main() -> None:
    name, step, folder = sys.argv[1:4]
    module = import_module(f"proof.frameworks_alone.{name}")
    if step == "packages":
        versions = ", ".join(f"{each} {version(each)}" for each in module.PACKAGES)
        found: object = {"packages": versions, "stored_by": module.STORED_BY}
    else:
        found = asyncio.run(getattr(module, step)(Path(folder)))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
