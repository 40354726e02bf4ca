"""API keys: read once from the environment, kept as digests, compared in constant time."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from hashlib import sha256

from rerank.errors import InputError
from rerank.serving.settings import is_loopback

VARIABLE = "RERANK_API_KEYS"
"""Keys, separated by commas; any of them opens."""


class Keys:
    """The keys that open the server; without any it is open."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self._digests = tuple(sha256(key.encode()).digest() for key in keys)

    def __bool__(self) -> bool:
        """Whether a key is asked for."""
        return bool(self._digests)

    def allow(self, authorization: bytes | None) -> bool:
        """Whether `Authorization: Bearer KEY` holds a key, in time that tells nothing of the keys.

        Without keys every request is allowed.
        """
        if not self:
            return True
        scheme, _, given = (authorization or b"").partition(b" ")
        digest = sha256(given.strip()).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return scheme.lower() == b"bearer" and any(matches)


def keys_for(host: str, environment: Mapping[str, str] = os.environ) -> Keys:
    """The keys of the environment.

    Raises:
        InputError: there are none and others than this machine can reach `host`; or a key that no
            header can hold.
    """
    given = environment.get(VARIABLE, "")
    keys = tuple(key for part in given.split(",") if (key := part.strip()))
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise InputError(f"a key in {VARIABLE} has characters that no header can hold; use ASCII")
    if not keys and not is_loopback(host):
        raise InputError(
            f"others than this machine can reach {host or 'every address'}, so {VARIABLE} must "
            "name the keys that open the server; or listen on 127.0.0.1"
        )
    return Keys(keys)
