"""The version of this package, as what it writes names it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

PACKAGE = "calibrated-rerank"


def package_version() -> str:
    """The installed version; "unknown" if the package is run from a tree that is not installed."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"
