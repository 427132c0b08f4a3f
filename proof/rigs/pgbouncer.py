"""A real PgBouncer before a private cluster, in transaction mode, run by the cluster's user."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from proof.rigs.postgres_cluster import Cluster


def find_pgbouncer() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Pooler:
    """`pool_size` server connections for any number of clients. `stop` ends it."""

    def __init__(self, program: str, cluster: Cluster, *, pool_size: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hf-pool-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={cluster.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {self.folder / 'users'}\npool_mode = transaction\n"
            f"default_pool_size = {pool_size}\nmax_client_conn = 100\n"
            f"logfile = {self.folder / 'log'}\npidfile = {self.folder / 'pid'}\n"
        )
        users = self.folder / "users"
        users.write_text('"owner" ""\n')
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        for each in (self.folder, settings, users):
            if user is not None:
                os.chown(each, user.pw_uid, user.pw_gid)
        self._process = subprocess.Popen(
            [program, "-q", str(settings)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=user.pw_uid if user is not None else None,
            group=user.pw_gid if user is not None else None,
            extra_groups=[] if user is not None else None,
        )
        ends = time.monotonic() + 20
        while time.monotonic() < ends:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise TimeoutError("pgbouncer did not start")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)
