"""The short form of `make soak`: every trouble for a few seconds."""

from __future__ import annotations

import random

import pytest

from tests.soak import TROUBLES, soak


@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_good_request_is_answered_once_and_in_order(trouble: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # pytest shows it where the test fails
    print(soak(3.0, seed, trouble))
