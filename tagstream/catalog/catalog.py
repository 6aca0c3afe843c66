"""The interface of a catalogue, and its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from tagstream.catalog.entry import PartitionEntry, TableEntry
from tagstream.table.errors import TagstreamError

Values = tuple[str, ...]
_T = TypeVar("_T")


class CatalogError(TagstreamError):
    """A catalogue could not be reached, or refused a call. The next sync tries again."""


class IncompatibleColumnsError(CatalogError):
    """The catalogue refuses the change of a table's columns."""


class Catalog(Protocol):
    """Databases, tables and partitions of one catalogue. Each method raises CatalogError, which names the call."""

    @property
    def name(self) -> str:
        """Its kind and address, for a message."""
        ...

    def location(self, url: str) -> str:
        """The URL of a folder as readers of this catalogue know it."""
        ...

    def has_database(self, database: str) -> bool:
        """Whether the database exists."""
        ...

    def create_database(self, database: str) -> None:
        """Create the database; an existing one is not changed."""
        ...

    def table(self, database: str, name: str) -> TableEntry | None:
        """The table's entry, None where there is none."""
        ...

    def create_table(self, entry: TableEntry) -> None:
        """Create the entry of an external table."""
        ...

    def alter_table(self, entry: TableEntry, *, cascade: bool) -> None:
        """Give an existing table this entry's columns, formats and parameters; ``cascade``: its partitions, too.

        IncompatibleColumnsError where the catalogue refuses the columns.
        """
        ...

    def drop_table(self, database: str, name: str) -> None:
        """Remove the entry; the data is kept."""
        ...

    def partitions(self, entry: TableEntry, values: Sequence[Values] | None = None) -> Mapping[Values, str]:
        """The locations of the partitions, by their values; ``values``: only of these, if they exist."""
        ...

    def add_partitions(self, entry: TableEntry, added: Sequence[PartitionEntry]) -> None:
        """Create partitions with the table's columns and formats; existing ones are not changed."""
        ...

    def update_partitions(self, entry: TableEntry, changed: Sequence[PartitionEntry]) -> None:
        """Give existing partitions their location, and the table's columns and formats; this also updates their time."""
        ...

    def drop_partitions(self, entry: TableEntry, dropped: Sequence[Values]) -> None:
        """Remove partitions; the data is kept, and a missing partition is not an error."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def pieces(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """The items in calls of at most ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))
