"""How hypothesis chooses its examples."""

from __future__ import annotations

import os

from hypothesis import settings

# A change is judged by the same examples each time; whoever runs the tests by hand looks
# for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("same" if os.environ.get("CI") == "true" else "new")
