"""Reformat JSON or SQL in the region.

(duet-rpc-define-command my-json "reformat" :params (:text region :kind "json") :result replace)
(duet-rpc-define-command my-sql-tidy "reformat" :params (:text region :kind "sql") :result replace)
"""

import json
import re
from typing import Literal

from duet_rpc import RpcError, method

NEW_LINE = "select|from|where|group by|having|order by|limit|(?:left |inner )?join|union|values|set"
KEYWORD = re.compile(rf"('[^']*'|\"[^\"]*\")|\s*\b({NEW_LINE})\b\s*|\s+", re.IGNORECASE)


def sql(text: str) -> str:
    def tidy(match: "re.Match[str]") -> str:
        quoted, keyword = match.groups()
        return quoted or (f"\n{keyword.upper()} " if keyword else " ")

    return KEYWORD.sub(tidy, text.strip()).strip() + "\n"


@method
def reformat(text: str, kind: Literal["json", "sql"]) -> str:
    """Reformat JSON or SQL, with one item per line."""
    if kind == "sql":
        return sql(text)
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"
    except ValueError as error:
        raise RpcError(-32001, f"The text is not JSON: {error}") from None
