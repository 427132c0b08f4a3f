"""
A primary and its synchronous standby, which change places when the primary dies.

Both have a port for good, so that one address names them. A commit is acknowledged once the
standby has it, so a failover loses nothing that was acknowledged.
"""

import contextlib
import shutil
import time
from pathlib import Path

import psycopg

from proof.rigs.postgres_cluster import Cluster

_PATIENCE_SECONDS = 60.0
_IN_SYNC = "select 1 from pg_stat_replication where state = 'streaming' and sync_state = 'sync'"


class Pair:
    def __init__(self, bin_folder: Path) -> None:
        self.primary = Cluster(bin_folder).create()
        self.primary.configure(wal_keep_size="1GB")
        self.primary.start()
        self._standby = self._new_standby(Cluster(bin_folder))

    def url(self) -> str:
        ports = sorted(each.port for each in (self.primary, self._standby))
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://owner@{hosts}/postgres?target_session_attrs=read-write"

    def kill(self) -> None:
        self.primary.kill()

    def start(self) -> None:
        self.primary.start()

    def fail_over(self) -> None:
        """Kill the primary, promote the standby, and make a new standby in the dead one's place."""
        self._wait_until_in_sync()
        dead, self.primary = self.primary, self._standby
        dead.kill()
        self.primary.configure(synchronous_standby_names="")
        self.primary.run("pg_ctl", "-D", str(self.primary.data), "-w", "promote")
        self._standby = self._new_standby(dead)

    def remove(self) -> None:
        self.primary.remove()
        self._standby.remove()

    def _new_standby(self, place: Cluster) -> Cluster:
        shutil.rmtree(place.data, ignore_errors=True)
        self.primary.copy_to(place)
        place.start()
        self.primary.configure(synchronous_standby_names="*")
        self.primary.run("pg_ctl", "-D", str(self.primary.data), "reload")
        self._wait_until_in_sync()
        return place

    def _wait_until_in_sync(self) -> None:
        ends = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < ends:
            with (
                contextlib.suppress(psycopg.OperationalError),  # it still recovers
                psycopg.connect(self.primary.url(), autocommit=True) as owner,
            ):
                if owner.execute(_IN_SYNC).fetchone() is not None:
                    return
            time.sleep(0.05)
        raise TimeoutError("the standby does not stream")
