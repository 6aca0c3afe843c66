"""Values as text for people: numbers, bytes, times, and foreign texts made safe to show."""

from __future__ import annotations

import datetime as dt
import unicodedata
from typing import Any

NOTHING = "–"
LONGEST = 160
# Control characters, surrogates, and invisible characters that change the direction of the text after them.
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_BOUNDS = "under 1 MiB", "1–8 MiB", "8–32 MiB", "32–100 MiB", "100–256 MiB", "256 MiB and more"


def outside(value: Any, longest: int = LONGEST) -> str:
    """A foreign text (partition path, key, message) with invisible characters escaped. The middle of a long text is
    left out.
    """
    text = "" if value is None else str(value)
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]} … {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(_written(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def _written(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def number(value: float | None) -> str:
    """A number with digits in groups, and with three significant digits below a thousand."""
    if value is None:
        return NOTHING
    if isinstance(value, int) or abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


def size(value: float | None) -> str:
    """Bytes with a suitable unit."""
    if value is None:
        return NOTHING
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return NOTHING


def span(seconds: float | None) -> str:
    """A length of time: ms under a second, two units above a minute."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for one, unit, below, small in ((60, "min", 1, "s"), (3600, "h", 60, "min"), (86_400, "d", 3600, "h")):
        if whole < one * (60 if unit == "min" else 24) or unit == "d":
            return f"{whole // one} {unit} {whole % one // below} {small}"
    return NOTHING


def moment(at_ms: int | None) -> str:
    """A time in epoch milliseconds, to the second, in UTC."""
    if at_ms is None:
        return NOTHING
    try:
        return f"{dt.datetime.fromtimestamp(at_ms // 1000, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


def size_bounds() -> tuple[str, ...]:
    """The names of ``table.services.health.SIZE_BOUNDS``."""
    return _BOUNDS
