"""The engine of the page, for the tests that use it."""

from trystate.property_tests.support.page import engine

__all__ = ["engine"]
