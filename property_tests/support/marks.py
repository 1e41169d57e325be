"""Marks of tests."""

from __future__ import annotations

import os

import pytest

VERIFIED = "TRYSTATE_VERIFIED" in os.environ  # `trystate verify --all` is run as well as these tests
by_verify = pytest.mark.skipif(VERIFIED, reason="`trystate verify` compares it")
