"""Marks of tests."""

from __future__ import annotations

import os

import pytest

by_verify = pytest.mark.skipif("TRYSTATE_VERIFIED" in os.environ, reason="`trystate verify` compares it")
