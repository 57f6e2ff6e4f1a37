"""Reformat JSON or SQL in the region, or in the whole buffer."""

import json
import re

from duet_rpc import Region, RpcError, command

NEW_LINE = "select|from|where|group by|having|order by|limit|(?:left |inner )?join|union|values|set"
KEYWORD = re.compile(rf"('[^']*'|\"[^\"]*\")|\s*\b({NEW_LINE})\b\s*|\s+", re.IGNORECASE)


@command(result="edit")
def reformat_json(text: Region) -> str:
    """Reformat the JSON in the region, with one item per line."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"
    except ValueError as error:
        raise RpcError(-32001, f"The text is not JSON: {error}") from None


@command(result="edit")
def reformat_sql(text: Region) -> str:
    """Reformat the SQL in the region, with one clause per line."""

    def tidy(match: "re.Match[str]") -> str:
        quoted, keyword = match.groups()
        return quoted or (f"\n{keyword.upper()} " if keyword else " ")

    return KEYWORD.sub(tidy, text.strip()).strip() + "\n"
