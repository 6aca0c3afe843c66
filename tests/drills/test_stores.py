"""A stream on S3 through a network and a store that go wrong: every kind of it, at both clients, Hadoop's and ours."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.drills.conftest import NewDrill
from tests.drills.store_job import StoreJob
from tests.drills.stream_job import chunks_of
from tests.support.events import Mix, generate
from tests.support.http_proxy import CHANGES, LOSE, PASS, REFUSE, RESET, HttpProxy, Request
from tests.support.s3_server import S3Server

pytestmark = [pytest.mark.drill, pytest.mark.s3]
CHUNKS = chunks_of(list(generate(400, Mix(keys=90, deletes=0.1), seed=17)), 80)


def lost_answers() -> Callable[[Request], str]:
    """The answer to every 20th change is lost."""
    count = [0]

    def rule(request: Request) -> str:
        count[0] += request.kind in CHANGES
        return LOSE if request.kind in CHANGES and count[0] % 20 == 0 else PASS

    return rule


def resets() -> Callable[[Request], str]:
    """One connection in twenty breaks."""
    chance = random.Random(7)
    return lambda _: RESET if chance.random() < 0.05 else PASS


def busy() -> Callable[[Request], str]:
    """Nothing but 503 for five seconds, out of every thirty."""
    began = time.monotonic()
    return lambda _: REFUSE if 20 < (time.monotonic() - began) % 30 < 25 else PASS


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("fault", [lost_answers, resets, busy])
def test_a_stream_through_a_bad_network(
    fault: Callable[[], Callable[[Request], str]],
    table_type: str,
    new_drill: NewDrill,
    proxy: HttpProxy,
    s3_server: S3Server,
    s3_folder: str,
    tmp_path: Path,
) -> None:
    through = s3_server.settings(proxy.url)
    job = StoreJob.at(s3_server, s3_folder, tmp_path / "job", table_type, CHUNKS, settings=through)
    job.write_input()
    wrong = [0]
    rule = fault()

    def counted(request: Request) -> str:
        what = rule(request)
        wrong[0] += what != PASS
        return what

    with new_drill(f"S3: {fault.__doc__}", table_type, 5) as drill:
        proxy.rule = counted
        job.finish()
        proxy.reset()
        drill.injected += wrong[0]
        drill.compare(job)
        assert job.check() == len(CHUNKS)
        assert job.unnamed_files() == []
