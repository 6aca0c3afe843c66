"""Real Hudi for the tests marked hudi_jar: one process a release, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.peers import home as peers
from tests.interop.hudi_spark import HudiSpark


@pytest.fixture(scope="session", params=peers.HUDI_VERSIONS)
def hudi(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """A running Hudi of each release in turn."""
    peers.set_up()
    with HudiSpark(request.param, tmp_path_factory.mktemp(f"hudi-{request.param}")) as running:
        yield running
