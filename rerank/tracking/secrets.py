"""Addresses and commands without secrets, as readers of a page may see them.

Users, passwords, and all that follows a `?` or `#` are left out, whether they are secret or not.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from urllib.parse import unquote

LOCAL = ("", "file", "sqlite")  # schemes of a file of this machine
_ADDRESS = re.compile(r"(.*?)([A-Za-z][A-Za-z0-9+.-]*:/{2,})(.*)", re.DOTALL)


def shown_store(uri: str) -> str:
    """The address of a store for a page: without secrets.

    Of a local file it is only the name, without its folder.

    >>> shown_store("https://user:secret@mlflow.example:5000/team?token=secret")
    'https://mlflow.example:5000/team'
    >>> shown_store("sqlite:////home/ann/work/mlflow.db")
    'sqlite: mlflow.db'
    """
    scheme, colon, rest = uri.partition(":")
    if not colon or scheme.lower() in LOCAL:
        kind = scheme.lower() if colon else "file"
        path = re.split("[?#]", rest if colon else uri)[0]
        return f"{kind}: {unquote(PurePath(path).name)}"
    return without_secrets(uri)


def kept_store(uri: str) -> str:
    """The address of a store to keep and to print: whole if it is of this machine, which has no
    secrets; else without them.

    >>> kept_store("https://user:secret@mlflow.example:5000/team")
    'https://mlflow.example:5000/team'
    """
    return uri if uri.partition(":")[0].lower() in LOCAL else without_secrets(uri)


def shown_command(command: str) -> str:
    """A command line in which every address is without secrets; "" if it cannot be read.

    >>> shown_command("rerank recalibrate m --journal postgresql://ann:secret@host/db")
    'rerank recalibrate m --journal postgresql://host/db'
    """
    try:
        words = shlex.split(command)
    except ValueError:  # cut within quotes
        return "" if "@" in command or "://" in command else command
    return shlex.join(map(without_secrets, words))


def without_secrets(word: str) -> str:
    """A word; if it holds an address, without its user, password, query and fragment."""
    address = _ADDRESS.fullmatch(word)
    if address is None:
        return word
    head, scheme, tail = address.groups()
    return f"{head}{scheme}{re.split('[?#]', tail.rpartition('@')[2])[0]}"
