"""Engines that read Hudi tables, as a program of the readers' Python: takes orders as JSON lines, answers with JSON lines.

It stands alone, as that environment has nothing of this project. An order names a `reader` and what it needs; an answer has
`rows`, lists of values in the order of the columns, or `error`, what the engine says. An answer's line begins with ANSWER.
"""

from __future__ import annotations

import json
import sys
from typing import Any

ANSWER = "ANSWER "


def clickhouse(url: str, key: str, secret: str, columns: list[str]) -> list[list[Any]]:
    """By the table function `hudi`, which reads stores only."""
    import chdb

    names = ", ".join(f"`{name}`" for name in columns)
    query = f"SELECT {names} FROM hudi('{url}', '{key}', '{secret}', 'Parquet')"
    lines = chdb.query(query, "JSONCompactEachRow").bytes().decode().splitlines()
    return [json.loads(line) for line in lines]


def daft(path: str, columns: list[str]) -> list[list[Any]]:
    """By `read_hudi`."""
    import daft

    found = daft.read_hudi(path).select(*columns).to_pydict()
    return [list(row) for row in zip(*(found[name] for name in columns), strict=True)]


def duckdb(path: str, columns: list[str]) -> list[list[Any]]:
    """By the function of an extension, as DuckDB names those of other formats."""
    import duckdb

    names = ", ".join(f'"{name}"' for name in columns)
    database = duckdb.connect()
    return [list(row) for row in database.execute(f"SELECT {names} FROM hudi_scan(?)", [path]).fetchall()]


def trino(port: int, name: str, columns: list[str], where: str = "true") -> list[list[Any]]:
    """`name`: catalog.database.table."""
    import trino

    names = ", ".join(f'"{column}"' for column in columns)
    table = ".".join(f'"{part}"' for part in name.split("."))
    with trino.dbapi.connect(host="127.0.0.1", port=port, user="reader") as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT {names} FROM {table} WHERE {where}")
        return [list(row) for row in cursor.fetchall()]


READERS = {each.__name__: each for each in (clickhouse, daft, duckdb, trino)}


def main() -> None:
    """Answer each order until there are no more."""
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer: dict[str, Any] = {"rows": READERS[order.pop("reader")](**order)}
        except BaseException as e:  # what an engine raises is its own, a panic of Rust among it
            answer = {"error": f"{type(e).__name__}: {getattr(e, 'message', None) or e}"}
        print(ANSWER + json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
