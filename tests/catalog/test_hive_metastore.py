"""A metastore that speaks TLS, one that does not answer, one that closes the connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagstream.catalog.catalog import CatalogError
from tagstream.catalog.hive_metastore import HiveMetastore
from tagstream.catalog.opened import tls_context
from tagstream.table.errors import ConfigError
from tests.support.hive_metastore import VERSIONS, MetastoreServer


@pytest.fixture
def closing() -> Iterator[str]:
    """The address of a server that closes each connection at once, as one does that asks for Kerberos."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"thrift://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()


def test_one_that_closes_the_connection(closing: str) -> None:
    with pytest.raises(CatalogError, match=r"no metastore answers .*Kerberos"):
        HiveMetastore([closing], "me").has_database("default")


def test_one_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"thrift://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CatalogError, match="no answer in time"):
            HiveMetastore([uri], "me", timeout_seconds=0.5).has_database("default")


def test_a_file_of_certificates_that_is_none(tmp_path: Path) -> None:
    wrong = tmp_path / "x.pem"
    wrong.write_text("nothing")
    for path in (wrong, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match=r"tls\.ca\.file"):
            tls_context(str(path))
    assert tls_context(None) is None


@pytest.mark.extended("needs a real Hive Metastore")
@pytest.mark.parametrize("version", VERSIONS)
def test_tls(tmp_path: Path, version: str) -> None:
    with MetastoreServer(tmp_path, version, tls=True) as server:
        assert server.answers()
        with pytest.raises(CatalogError, match="no metastore answers"):
            HiveMetastore([server.uri], "me", tls=tls_context("system")).has_database("default")
        with pytest.raises(CatalogError, match="no metastore answers"):
            HiveMetastore([server.uri], "me", timeout_seconds=5.0).has_database("default")
