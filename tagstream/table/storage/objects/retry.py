"""A conditional put that was sent, and whose answer never came: was it carried out?

The client itself sends such a request once only (it would take its own object for another writer's). Here it is sent again
until an answer comes; only an answer to the first request can be trusted to speak of others alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from tagstream.table.storage.objects.clients import RETRY_S
from tagstream.table.storage.objects.errors import may_pass


def put_once(send: Callable[[], str], is_own: Callable[[], str | None]) -> str | None:
    """Send a conditional put until it is answered; the object's version, or None when another's was there before.

    ``is_own`` looks at what is there: its version when it is what is being put. An error that stays is raised.
    """
    unknown = False
    waits = _waits()
    while True:
        try:
            return send()
        except (AlreadyExistsError, PreconditionError):
            return is_own() if unknown else None
        except BaseError as error:
            if not may_pass(error):
                raise
            unknown = True
            wait = next(waits, None)
            if wait is None:
                found = is_own()
                if found is None:
                    raise
                return found
        time.sleep(wait)


def _waits() -> Iterator[float]:
    """Seconds between the attempts, as the client's own: doubling, up to a sum."""
    began, wait = time.monotonic(), 0.1
    while time.monotonic() - began < RETRY_S:
        yield wait
        wait = min(2 * wait, 4.0)
