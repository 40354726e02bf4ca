"""No secret is shown: addresses and command lines as people write them, and as they should not."""

from __future__ import annotations

import shlex

import pytest

from rerank.tracking.client import shown_command, shown_store


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://mlflow.example:5000", "http://mlflow.example:5000"),
        ("https://ann:secret@mlflow.example/team", "https://mlflow.example/team"),
        ("https://secret@mlflow.example", "https://mlflow.example"),
        ("https://mlflow.example?token=secret#secret", "https://mlflow.example"),
        ("postgresql://ann:se/cr?et#@host:5432/db", "postgresql://host:5432/db"),
        ("postgresql+psycopg://ann:secret@secret@host/db?password=secret", None),
        ("sqlite:////home/ann/secret/mlflow.db", "sqlite: mlflow.db"),
        ("sqlite:///mlflow.db?key=secret", "sqlite: mlflow.db"),
        ("file:///home/secret/mlruns", "file: mlruns"),
        ("/home/secret/mlruns", "file: mlruns"),
        ("databricks", "file: databricks"),
        ("databricks://profile", "databricks://profile"),
        ("", "file: "),
    ],
)
def test_the_address_of_a_store(uri: str, shown: str | None) -> None:
    """Where it is, without who may enter it, and without folders of this machine."""
    found = shown_store(uri)
    assert "secret" not in found
    assert "se/cr" not in found
    assert shown is None or found == shown


def test_a_command_keeps_all_but_its_secrets() -> None:
    """Each word on its own; one that is no address stays as it is."""
    words = ["rerank", "calibrate", "my set", "--out", "a@b", "--name", "models:/x@champion"]
    assert shown_command(shlex.join(words)) == shlex.join(words)
    for secret in (
        "postgresql://u:se cret@host/db",
        "--journal=postgresql://u:se'cret@host/db?a=b",
    ):
        found = shown_command(shlex.join(["rerank", "recalibrate", "m", secret, "--quiet"]))
        assert "cret" not in found
        assert "//host/db" in found
        assert found.endswith(" --quiet")


def test_a_command_that_was_cut_within_quotes_is_not_guessed_at() -> None:
    """Unless there is nothing in it that could be a secret."""
    assert shown_command("rerank calibrate 'my se") == "rerank calibrate 'my se"
    assert shown_command("rerank recalibrate 'postgresql://u:secret") == ""
