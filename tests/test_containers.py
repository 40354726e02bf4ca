"""What Containerfile and compose.yaml run: commands and extras that exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import yaml

from rerank.commands.parser import parser
from rerank.errors import EXTRAS

ROOT = Path(__file__).parents[1]
CONTAINER = (ROOT / "Containerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_the_container_serves() -> None:
    """Its command is one of ours, and its extras are extras."""
    (command,) = re.findall(r"^CMD (.*)$", CONTAINER, re.MULTILINE)
    assert parser().parse_args(json.loads(command)).command.name == "serve"
    (extras,) = re.findall(r"whl\)\[([\w,]+)\]", CONTAINER)
    assert set(extras.split(",")) <= set(EXTRAS)


def test_what_the_container_copies_is_there() -> None:
    """From the checkout into the image."""
    for copied in re.findall(r"^COPY (?!--from)(\S+) ", CONTAINER, re.MULTILINE):
        assert (ROOT / copied).exists(), copied


def test_the_composed_server() -> None:
    """It keeps its journal in the database beside it, by the same user, and asks for keys."""
    server, journal = COMPOSE["services"]["server"], COMPOSE["services"]["journal"]
    options = parser().parse_args(shlex.split(server["command"]))
    login = journal["environment"]
    assert (
        options.journal == f"postgresql://{login['POSTGRES_USER']}@journal/{login['POSTGRES_DB']}"
    )
    assert "RERANK_API_KEYS" in server["environment"]
    (mounted,) = server["volumes"]
    assert mounted.split(":")[1:] == [options.model, "ro"]
    assert (ROOT / server["build"]["dockerfile"]).exists()
    named = {volume.split(":")[0] for s in COMPOSE["services"].values() for volume in s["volumes"]}
    assert {name for name in named if not name.startswith(".")} == set(COMPOSE["volumes"])
