"""A covering array: few cases that have every pair of values which may be together. A seed gives one array."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random

from tests.pairs.options import Pair

_TRIES = 30  # candidates of each case; the one with the most new pairs is taken


def covering(
    options: Mapping[str, Sequence[str]], refused: Collection[Pair], seed: int, *, tries: int = _TRIES
) -> list[dict[str, str]]:
    """Cases without a refused pair that have all other pairs. ValueError names a pair that no case can have.

    Greedy, as AETG does it: each case begins with a pair that is still missing, and each further option, in an order that is
    drawn, takes the value with the most missing pairs.
    """
    random, banned = Random(seed), set(refused)
    left = {pair for pair in _pairs(options) if pair not in banned}
    cases: list[dict[str, str]] = []
    while left:
        first = min(left, key=lambda pair: sorted(pair))
        made = [_candidate(options, banned, left, pair, random) for pair in _starts(left, first, tries, random)]
        good = [case for case in made if case is not None]
        if not good:
            must = completed(options, banned, dict(first), random)
            if must is None:
                raise ValueError(f"no case can have {sorted(first)}")
            good = [must]
        case = max(good, key=lambda each: len(left & _of(each)))
        left -= _of(case)
        cases.append(case)
    return cases


def completed(
    options: Mapping[str, Sequence[str]], banned: Collection[Pair], begun: Mapping[str, str], random: Random
) -> dict[str, str] | None:
    """A case with the values that are ``begun``, the others drawn so that no further refused pair is in it; None: there is
    none."""
    case, names = dict(begun), [name for name in options if name not in begun]
    if not names:
        return case
    name = min(names, key=lambda each: sum(_fits(banned, case, each, value) for value in options[each]))
    values = [value for value in options[name] if _fits(banned, case, name, value)]
    random.shuffle(values)
    for value in values:
        found = completed(options, banned, {**case, name: value}, random)
        if found is not None:
            return {each: found[each] for each in options}
    return None


def _starts(left: set[Pair], first: Pair, tries: int, random: Random) -> list[Pair]:
    ordered = sorted(left, key=lambda pair: sorted(pair))
    return [first, *(random.choice(ordered) for _ in range(tries - 1))]


def _candidate(
    options: Mapping[str, Sequence[str]], banned: set[Pair], left: set[Pair], start: Pair, random: Random
) -> dict[str, str] | None:
    case = dict(sorted(start))
    names = [name for name in options if name not in case]
    random.shuffle(names)
    for name in names:
        fitting = [value for value in options[name] if _fits(banned, case, name, value)]
        if not fitting:
            return None
        gains = {value: sum(frozenset({(name, value), other}) in left for other in case.items()) for value in fitting}
        best = max(gains.values())
        case[name] = random.choice([value for value in fitting if gains[value] == best])
    return {name: case[name] for name in options}


def _fits(banned: Collection[Pair], case: Mapping[str, str], name: str, value: str) -> bool:
    return not any(frozenset({(name, value), other}) in banned for other in case.items())


def _pairs(options: Mapping[str, Sequence[str]]) -> list[Pair]:
    names = list(options)
    return [
        frozenset({(one, first), (other, second)})
        for at, one in enumerate(names)
        for other in names[at + 1 :]
        for first in options[one]
        for second in options[other]
    ]


def _of(case: Mapping[str, str]) -> set[Pair]:
    return set(_pairs({name: [value] for name, value in case.items()}))
