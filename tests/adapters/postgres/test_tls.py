"""TLS to the server: its name is checked, and a server that can't prove it is refused."""

import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from proof.rigs.postgres_cluster import Cluster

from holdfast.adapters.postgres.home.create import init_home
from holdfast.adapters.postgres.server import DatabaseAddress, connect
from holdfast.errors import Unusable


@pytest.fixture(scope="module")
def secured(
    postgres: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[Cluster, Path], None, None]:
    """A server with a certificate for `localhost`, and the authority that made it."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    cluster = Cluster(postgres.bin).create()
    key, certificate = cluster.data / "server.key", cluster.data / "server.crt"
    subprocess.run(_certificate(key, certificate, "localhost"), check=True, capture_output=True)
    owner = cluster.data.stat()
    for each in (key, certificate):
        shutil.chown(each, owner.st_uid, owner.st_gid)
    key.chmod(0o600)
    root = tmp_path_factory.mktemp("tls") / "root.crt"
    root.write_bytes(certificate.read_bytes())
    cluster.configure(ssl="on")
    cluster.start()
    yield cluster, root
    cluster.remove()


def _certificate(key: Path, certificate: Path, name: str) -> list[str]:
    made = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name}".split()
    named = ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)]
    return ["openssl", *made, *named]


def _url(cluster: Cluster, host: str, more: str) -> str:
    return f"postgresql://owner@{host}:{cluster.port}/postgres?{more}"


def test_a_home_is_used_over_tls_with_a_checked_name(
    secured: tuple[Cluster, Path], tmp_path: Path
) -> None:
    cluster, root = secured
    place = DatabaseAddress(
        _url(cluster, "localhost", f"sslmode=verify-full&sslrootcert={root}"), "hf"
    )
    assert init_home(place, tmp_path / "node").is_new
    wire = connect(place)
    found = wire.rows("select ssl from pg_stat_ssl where pid = pg_backend_pid()")
    wire.close()
    assert found == [(True,)]


def test_a_server_of_another_name_or_authority_is_refused_with_the_next_step(
    secured: tuple[Cluster, Path], tmp_path: Path
) -> None:
    cluster, root = secured
    other = tmp_path / "other.crt"
    subprocess.run(
        _certificate(tmp_path / "other.key", other, "other"), check=True, capture_output=True
    )
    for host, authority in (("127.0.0.1", root), ("localhost", other)):
        url = _url(cluster, host, f"sslmode=verify-full&sslrootcert={authority}")
        with pytest.raises(Unusable, match="certificate") as refused:
            connect(DatabaseAddress(url, "hf"))
        assert "sslrootcert=" in refused.value.hint


@pytest.mark.parametrize("mode", ["disable", "prefer", "require", "verify-ca"])
def test_a_server_elsewhere_needs_a_checked_name(mode: str) -> None:
    """Nothing is sent: the address alone is refused."""
    url = f"postgresql://owner@db.example.com/x?sslmode={mode}"
    with pytest.raises(Unusable, match="does not check the server's name") as refused:
        connect(DatabaseAddress(url, "hf"))
    assert "sslmode=verify-full" in refused.value.hint
