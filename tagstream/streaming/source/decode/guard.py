"""Which records may go to Arrow's JSON reader at all.

That reader takes a stream of values: it accepts two objects in one record, ``null`` between them (a ``null`` alone
kills the process), and ``NaN``. Joined by newlines, records therefore pass only if the reader can make nothing but
exactly one row of each:

* the record begins with ``{`` and ends with ``}`` (blanks around it aside): what begins as another value never gets in,
  and an object that is still open at the end meets the next record's ``{`` where no value may stand, which is an error;
* no ``}`` is followed by the beginning of another value: an object that ended early would be followed by one.

Texts that merely look so (``"a } b"``) take the strict path, which is slower and never wrong.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SECOND_VALUE = r"\}[ \t\r\n]*[^,\]} \t\r\n]"
_NOT_JSON = ("NaN", "Inf")
# More than 17 significant digits in a decimal fraction, or an exponent so small that digits may be lost: a double
# would not hold them. Whole numbers are looked at after parsing (from 2**53 on).
_LONG_FRACTION = "|".join(
    [
        r"\.[0-9]{18}",
        r"[1-9]\.[0-9]{17}",
        *(rf"[0-9]{{{i}}}\.[0-9]{{{18 - i}}}" for i in range(2, 18)),
        r"[0-9]{18}\.[0-9]",
        r"[0-9][eE]-[0-9]{3,}[ \t\r\n,}\]]",
    ]
)
# Arrow's decimals look a power of ten up outside of their table for such a scale and may read any digits there.
_FAR_DECIMAL = r"[0-9][eE][+-]?[0-9]{2,}[ \t\r\n,}\]\"]|\.[0-9]{39}"


def patterns(long_fractions: bool) -> tuple[str, ...]:
    """RE2 patterns of the records that must take the strict path; ``long_fractions``: those that lose digits in a double.

    Three plain patterns are each searched by their first letter, 4 ms per 15 MB; an alternation is not, 20 ms whatever
    is in it, so with floats everything goes into one.
    """
    plain = (_SECOND_VALUE, *_NOT_JSON)
    return ("|".join((*plain, _LONG_FRACTION)),) if long_fractions else plain


def trimmed(texts: pa.StringArray) -> pa.StringArray:
    """The records without blanks around them; the same array when there are none."""
    if pc.all(_whole(texts), min_count=0).as_py():
        return texts
    return pc.utf8_trim(texts, characters=" \t\r\n")


def unfit(texts: pa.StringArray, unwanted: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Mask of the (trimmed) records that must take the strict path; nulls are among them."""
    fit = _whole(texts)
    for pattern in unwanted:
        fit = pc.and_(fit, pc.invert(pc.match_substring_regex(texts, pattern)))
    mask: npt.NDArray[np.bool_] = ~pc.fill_null(fit, False).to_numpy(zero_copy_only=False)
    return mask


def has_far_decimal(texts: pa.StringArray) -> bool:
    """True when a record must not be read into a decimal column by Arrow."""
    return bool(pc.any(pc.match_substring_regex(texts, _FAR_DECIMAL), min_count=0).as_py())


def _whole(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
