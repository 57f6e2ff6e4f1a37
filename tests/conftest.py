"""How hypothesis chooses its examples, and which tests are the contract."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A change is judged by the same examples each time; whoever runs the tests by hand looks
# for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("same" if os.environ.get("CI") == "true" else "new")

HERE = Path(__file__).parent
INSIDE = HERE / "unit"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what drives the product from outside: it stays as it is when the inside changes."""
    for item in items:
        if INSIDE not in item.path.parents:
            item.add_marker(pytest.mark.contract)
