"""SQL over a CSV or SQLite file, as an org table.

In the query a CSV file is the table `data`: select city, sum(price) from data group by city
"""

import csv
import sqlite3
from pathlib import Path

from duet_rpc import RpcError, command


def open_database(file: Path) -> sqlite3.Connection:
    if file.suffix != ".csv":
        return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    database = sqlite3.connect(":memory:")
    with file.open(newline="", encoding="utf-8-sig") as lines:
        header, *rows = csv.reader(lines)
        columns = ", ".join('"' + name.replace('"', '""') + '" numeric' for name in header)
        database.execute(f"create table data ({columns})")
        database.executemany(f"insert into data values ({', '.join('?' * len(header))})", rows)
    return database


@command("sql.query", name="insert-query", result="insert")
def query(file: Path, query: str) -> str:
    """Insert the result of a query over a CSV or SQLite file, as an org table."""
    try:
        cursor = open_database(file.expanduser()).execute(query)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise RpcError(-32001, f"{file.name}: {error}") from None
    rows = [[column[0] for column in cursor.description or ()], *cursor]
    lines = ["| " + " | ".join(str(value) for value in row) + " |" for row in rows]
    return "\n".join([lines[0], "|-", *lines[1:]]) + "\n"
