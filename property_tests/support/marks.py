"""Marks of tests."""

from __future__ import annotations

import os

import pytest

VERIFIED = "TRYSTATE_VERIFIED" in os.environ  # by `trystate verify --all`, beside these tests
by_verify = pytest.mark.skipif(VERIFIED, reason="`trystate verify` compares it")
