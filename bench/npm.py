"""
Packages of npm, for the peer that needs them: fetched by `npm pack` into a temporary folder,
compared with the digests of requirements/peers-npm.lock, and unpacked. No script of a package runs,
and nothing is installed that the lock does not name.
"""

import base64
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

LOCK = Path(__file__).parent.parent / "requirements" / "peers-npm.lock"
PATIENCE_SECONDS = 60


class NoPackage(Exception):
    """It cannot be had here; the message is the reason."""


class Pinned(NamedTuple):
    name: str
    version: str
    digest: str


def pinned(text: str) -> list[Pinned]:
    return [
        Pinned(*line.split()) for line in text.splitlines() if line and not line.startswith("#")
    ]


def node() -> str:
    """The program that runs JavaScript."""
    for name in ("node", "npm"):
        if shutil.which(name) is None:
            raise NoPackage(f"{name} is not installed here")
    return str(shutil.which("node"))


def fetched(folder: Path) -> Path:
    """The folder `node_modules` with everything that the lock names."""
    modules = folder / "node_modules"
    for package in pinned(LOCK.read_text()):
        unpack(_packed(package, folder), package, modules)
    return modules


def unpack(archive: Path, package: Pinned, modules: Path) -> None:
    """Nothing is unpacked whose bytes are not those that were pinned."""
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if not hmac.compare_digest(found, package.digest):
        raise NoPackage(
            f"{package.name} {package.version} is not what was pinned: its digest is {found}"
        )
    place = modules / package.name
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=modules) as fresh, tarfile.open(archive) as tar:
        tar.extractall(fresh, filter="data")
        (Path(fresh) / "package").rename(place)


def _packed(package: Pinned, folder: Path) -> Path:
    command = [
        "npm",
        "pack",
        f"{package.name}@{package.version}",
        "--pack-destination",
        str(folder),
        "--json",
        "--ignore-scripts",
    ]
    quiet = {**os.environ, "NO_UPDATE_NOTIFIER": "1", "npm_config_fetch_retries": "1"}
    try:
        asked = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
            cwd=folder,
            env=quiet,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise NoPackage(
            f"{package.name} {package.version} could not be fetched: {type(exc).__name__}"
        ) from exc
    if asked.returncode != 0:
        codes = [
            line.removeprefix("npm error code ")
            for line in asked.stderr.splitlines()
            if line.startswith("npm error code ")
        ]
        raise NoPackage(
            f"{package.name} {package.version} could not be fetched: npm said {codes[0] if codes else asked.returncode}"
        )
    return folder / json.loads(asked.stdout)[0]["filename"]
