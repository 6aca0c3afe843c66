"""The fields of a table of real Hudi and of ours, held against each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.interop.fields import Fields
from tests.interop.known_differences import ABSENT, Known


@dataclass
class Compared:
    """One table's fields, and the differences by the known one that explains them."""

    real: Fields
    ours: Fields
    unexplained: list[str]
    used: set[Known]


def compare_fields(real: Fields, ours: Fields, known: Iterable[Known]) -> Compared:
    """Each difference is explained by the first of the ``known`` ones that covers it, or by none."""
    result, known = Compared(real, ours, [], set()), tuple(known)
    for field in {**real, **ours}:
        theirs, mine = real.get(field, ABSENT), ours.get(field, ABSENT)
        if theirs == mine:
            continue
        explained = next((each for each in known if each.covers(field, theirs, mine)), None)
        if explained is None:
            result.unexplained.append(f"{field}: real {str(theirs)[:200]} | ours {str(mine)[:200]}")
        else:
            result.used.add(explained)
    return result
