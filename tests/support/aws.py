"""moto's S3, DynamoDB and Glue on loopback, in this process: the calls go through HTTP, as to Amazon's.

moto answers in threads, and compares a condition (If-Match, an expression) apart from the write. Two writers at the same
moment would both succeed, which Amazon's services exclude. So the calls are answered one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from unittest import mock

REGION = "us-east-1"


@contextmanager
def aws_server() -> Iterator[dict[str, str]]:
    """Gives the environment by which boto3 and obstore find it."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication
    from moto.server import ThreadedMotoServer  # it takes a second, which a suite of other places need not wait

    one, answer = Lock(), DomainDispatcherApplication.__call__

    def in_turn(app: Any, environ: Any, start_response: Any) -> Any:
        with one:
            return answer(app, environ, start_response)

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    with mock.patch.object(DomainDispatcherApplication, "__call__", in_turn):
        server.start()
        try:
            host, port = server.get_host_and_port()
            yield {
                "AWS_ENDPOINT_URL": f"http://{host}:{port}",
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION,
            }
        finally:
            server.stop()


@contextmanager
def environment(settings: dict[str, str]) -> Iterator[None]:
    """These variables in this process's environment."""
    with mock.patch.dict("os.environ", settings):
        yield
