"""The version of this package, which its metadata says."""

from importlib.metadata import version

__version__ = version("trystate")
"""The version that is installed."""
