"""Rescoring on a cluster, with Ray."""

from __future__ import annotations

from typing import Any

from rerank.errors import optional


def scoring() -> Any:
    """The function `rerank.cluster.on_ray.on_ray`."""
    with optional():
        from rerank.cluster.ray_process import ray_module

        ray_module()  # before the module, which needs the pyarrow that it brings
        from rerank.cluster.on_ray import on_ray
    return on_ray
