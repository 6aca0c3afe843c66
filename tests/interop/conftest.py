"""Real Hudi for the tests marked hudi_jar: one process a release, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.peers import home as peers
from tests.interop.hudi_spark import HudiSpark
from tests.support.table_version import using

# A release of Hudi, and the version of the tables that it finds.
PAIRS = [*((release, 6) for release in peers.HUDI_VERSIONS), ("1.2.0", 8), ("1.2.0", 9)]


@pytest.fixture(scope="session", params=PAIRS, ids=[f"{release}-v{version}" for release, version in PAIRS])
def hudi(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """A running Hudi of each release in turn, with tables of each version that it knows."""
    release, version = request.param
    peers.set_up()
    with HudiSpark(release, tmp_path_factory.mktemp(f"hudi-{release}")) as running, using(version):
        yield running
