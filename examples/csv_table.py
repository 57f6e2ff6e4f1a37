"""The CSV file in this buffer: as a table whose columns can be sorted, or its columns in brief."""

import csv
import io
from typing import Dict, List

from duet_rpc import Buffer, RpcError, Text, command


def read(text: str) -> List[List[str]]:
    comma = max(",;\t", key=text[:2000].count)
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=comma) if row]
    if len(rows) < 2:
        raise RpcError(-32001, "There is no line of data below the names of the columns")
    return rows


@command
def csv_table(text: Buffer) -> List[Dict[str, str]]:
    """Show the CSV data of this buffer as a table."""
    header, *rows = read(text)
    return [dict(zip(header, row)) for row in rows]


@command
def csv_summary(text: Buffer) -> Text:
    """Show for each column how many values it has, the least and the greatest."""
    header, *rows = read(text)
    lines = ["| column | values | different | least | greatest |", "|-"]
    for name, column in zip(header, zip(*rows)):
        values = [value for value in column if value.strip()]
        try:
            values.sort(key=float)
        except ValueError:
            values.sort()
        ends = f"{values[0]} | {values[-1]}" if values else " | "
        lines.append(f"| {name} | {len(values)} | {len(set(values))} | {ends} |")
    return Text("\n".join(lines) + "\n", mode="org-mode")
