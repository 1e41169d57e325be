"""The versions of packages, this one included, from their metadata."""

from importlib.metadata import PackageNotFoundError, version


def installed(package: str) -> str:
    """The version of a package that is installed, or ""."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


__version__ = version("trystate")
"""The version that is installed."""
