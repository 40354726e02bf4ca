"""What Containerfile and compose.yaml run: commands and extras that exist."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rerank.cli import parse
from rerank.errors import EXTRAS

ROOT = Path(__file__).parents[1]
CONTAINER = (ROOT / "Containerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]
EXTRAS_OF_IT = re.findall(r"whl\)\[([\w,]+)\]", CONTAINER)[0].split(",")


def test_the_container_serves() -> None:
    """Its command is one of ours, and its extras are extras."""
    (command,) = re.findall(r"^CMD (.*)$", CONTAINER, re.MULTILINE)
    words = json.loads(command)
    assert words[0] == "serve"
    parse(words)
    assert set(EXTRAS_OF_IT) <= set(EXTRAS)
    locking = re.findall(r"--extra (\w+)", (ROOT / "Makefile").read_text())
    assert locking == EXTRAS_OF_IT


def requirements(*extras: str) -> Iterator[Requirement]:
    """Those of these extras, of what they name of ours, and with "" of the core."""
    for extra in extras:
        for line in OPTIONAL[extra] if extra else PROJECT["dependencies"]:
            found = Requirement(line)
            if found.name == PROJECT["name"]:
                yield from requirements(*found.extras)
            else:
                yield found


def installed(wanted: Iterable[Requirement]) -> set[str]:
    """The names of these and of all that they need on this machine, as far as it is installed."""
    todo, seen = list(wanted), set()
    while todo:
        one = todo.pop()
        if str(one) in seen:
            continue
        seen.add(str(one))
        with suppress(PackageNotFoundError):
            needed = map(Requirement, distribution(one.name).requires or ())
            extras = ["", *one.extras]
            todo += [n for n in needed if not n.marker or any_extra(n.marker, extras)]
    return {canonicalize_name(Requirement(one).name) for one in seen}


def any_extra(marker: Marker, extras: Sequence[str]) -> bool:
    return any(marker.evaluate({"extra": extra}) for extra in extras)


@pytest.mark.parametrize("extra", ["", *OPTIONAL])
def test_every_requirement_is_pinned(extra: str) -> None:
    """Those that an extra names by a version that it takes, and all that it needs."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for one in requirements(extra):
        name = canonicalize_name(one.name)
        assert name in pins, one
        assert one.specifier.contains(pins[name], prereleases=True), one
    assert not installed(requirements(extra)) - pins.keys() - {"setuptools"}  # it builds


def test_the_container_installs_by_hash_what_is_pinned() -> None:
    """All that its extras need, at the version of constraints.txt, each with its hashes."""
    assert "--require-hashes" in CONTAINER
    locked = (ROOT / "requirements-container.txt").read_text()
    pins = re.findall(r"^([\w.-]+)==([^\s;]+)[^\n]*\\\n((?:    --hash.*\n)+)", locked, re.M)
    assert len(pins) == len(re.findall("==[0-9]", re.sub(";.*", "", locked)))
    allowed = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").split()
    needed = installed(requirements("", *EXTRAS_OF_IT))
    assert needed <= {canonicalize_name(name) for name, *_ in pins}
    for name, version, hashes in pins:
        assert "--hash=sha256:" in hashes
        if name in needed:
            assert f"{name}=={version}" in allowed


def test_images_can_be_named_by_digest() -> None:
    """Every image is an argument, whose default is a tag."""
    froms = re.findall(r"^FROM (\S+)", CONTAINER, re.MULTILINE)
    assert set(froms) == {"${PYTHON}"}
    for service in COMPOSE["services"].values():
        build = service.get("build", {})
        given = service.get("image") or build["args"]["PYTHON"]
        assert given.startswith("${"), given


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_is_bounded_and_without_rights(name: str) -> None:
    """Limits, no capabilities, no way to more rights, a read-only root, and no root."""
    service = COMPOSE["services"][name]
    assert {"mem_limit", "cpus", "pids_limit"} <= service.keys()
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    inline = service.get("build", {}).get("dockerfile_inline", CONTAINER)
    user = service.get("user") or re.findall(r"^USER (\S+)", inline, re.MULTILINE)[-1]
    assert user not in ("root", "0")
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_mlflow_asks_who_is_there() -> None:
    """By its basic authentication, with a password that has no default."""
    service = COMPOSE["services"]["mlflow"]
    assert "--app-name basic-auth" in service["command"]
    assert service["environment"]["MLFLOW_AUTH_ADMIN_PASSWORD"].startswith("${MLFLOW_PASSWORD:?")


def test_what_the_container_copies_is_there() -> None:
    """From the checkout into the image."""
    for copied in re.findall(r"^COPY (?!--from)(\S+) ", CONTAINER, re.MULTILINE):
        assert (ROOT / copied).exists(), copied


def test_the_composed_server() -> None:
    """It keeps its journal in the database beside it, by the same user, and asks for keys."""
    server, journal = COMPOSE["services"]["server"], COMPOSE["services"]["journal"]
    _, options = parse(shlex.split(server["command"]))
    login = journal["environment"]
    assert (
        options.journal == f"postgresql://{login['POSTGRES_USER']}@journal/{login['POSTGRES_DB']}"
    )
    assert "RERANK_API_KEYS" in server["environment"]
    (mounted,) = server["volumes"]
    assert mounted.split(":")[1:] == [str(options.model), "ro"]
    assert (ROOT / server["build"]["dockerfile"]).exists()
    named = {volume.split(":")[0] for s in COMPOSE["services"].values() for volume in s["volumes"]}
    assert {name for name in named if not name.startswith(".")} == set(COMPOSE["volumes"])
