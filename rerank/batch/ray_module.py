"""The import of Ray, in the one place that first sets what Ray reads while it is imported.

It knows nothing of models, chunks or actors.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

logger = logging.getLogger(__name__)

SENDS_STATISTICS = "RAY_USAGE_STATS_ENABLED"
LISTENS_EVERYWHERE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # despite its name it holds on Linux too


def ray_module() -> Any:
    """The module `ray` with `ray.data`: it sends no statistics, and listens on loopback only.

    It may listen on other addresses if RAY_ADDRESS names a cluster, or if the user's environment
    says so. If a program has imported Ray before, it is too late; the log says so.

    Raises:
        ImportError: Ray is not installed.
    """
    os.environ.setdefault(SENDS_STATISTICS, "0")
    if not os.environ.get("RAY_ADDRESS") and LISTENS_EVERYWHERE not in os.environ:
        os.environ[LISTENS_EVERYWHERE] = "0"
        if "ray" in sys.modules:
            logger.warning(
                "a Ray that is started here listens on all network interfaces, as Ray was imported "
                "before; to prevent it, set %s=0 before Ray's import",
                LISTENS_EVERYWHERE,
            )
    import ray
    import ray.data

    return ray
