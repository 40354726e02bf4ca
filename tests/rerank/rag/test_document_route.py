"""A passage of an answer in its document, over HTTP: what is shown, to whom, and of which model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_checks import assert_refused
from server import serving

from rerank.jobs.update import update

SCRIPT = "<script>document.title = 'broken'</script>"
GUIDE = f"""# Guide

What the guide is about: arrays and how to sort them.

## Median

The median of an array that holds NaNs is computed by nanmedian.

```
{SCRIPT}
```

## Mean

The mean is the sum divided by the count.
"""


@pytest.fixture(scope="module")
def folder(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The session's model, updated to search two documents of several passages."""
    place = tmp_path_factory.mktemp("documents")
    (place / "texts").mkdir()
    (place / "texts" / "guide.md").write_text(GUIDE)
    (place / "texts" / "other.md").write_text("# Other\n\nSomething else about files.")
    ingest = pytest.importorskip("rerank.ingest.ingest")
    ingest.ingest(place / "texts", place / "set")
    model = Path(shutil.copytree(run.folder, place / "model"))
    update(model, place / "set")
    return model


@pytest.fixture
def reader(folder: Path) -> Iterator[httpx.Client]:
    """A client of a server of these documents."""
    with (
        serving(folder) as started,
        httpx.Client(base_url=started.url, timeout=600) as made,
    ):
        yield made


def asked_for(told: dict[str, Any]) -> dict[str, Any]:
    """What is asked about the first passage of an answer."""
    return {key: told["passages"][0][key] for key in ("row", "doc_id")}


def test_a_passage_is_shown_in_its_document(reader: httpx.Client) -> None:
    """All passages of the document with their headings, in order, and which one was found."""
    told = reader.post("/v1/ask", json={"query": "median of an array with NaNs"}).json()
    found = reader.get("/v1/document", params=asked_for(told)).json()
    assert found["document"] == "guide.md"
    headings = [one["heading"] for one in found["passages"]]
    assert headings == ["Guide", "Guide > Median", "Guide > Mean"]
    shown = found["passages"][found["found"]]
    assert {key: told["passages"][0][key] for key in shown} == shown
    assert SCRIPT in found["passages"][1]["text"]  # as it is: the page makes text of it
    assert (found["more_before"], found["more_after"]) == (False, False)
    answer = reader.get("/v1/document", params=asked_for(told))
    assert answer.headers["content-type"] == "application/json"


def test_a_passage_that_is_not_there_is_refused(reader: httpx.Client) -> None:
    """Another model may have another passage at the row; rows that no index has are not rows."""
    for row, doc_id in ((0, "another"), (2**40, "another")):
        refused = reader.get("/v1/document", params={"row": row, "doc_id": doc_id})
        assert_refused(refused, 409, "ask again")
    for wrong, sentence in (
        ({"row": -1, "doc_id": "a"}, "the parameter `row` should be 0 or more, got -1"),
        ({"row": 0}, "the parameter `doc_id` is missing"),
        ({"row": 0, "doc_id": "a", "rows": 1}, "unknown parameter 'rows'"),
        ({"row": 0, "doc_id": "a", "x": 1}, "in the address; this route has row, doc_id"),
        ({"row": "x", "doc_id": "a"}, "the parameter `row` should be a whole number, got text"),
    ):
        assert_refused(reader.get("/v1/document", params=wrong), 422, sentence)


def test_documents_need_a_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the answers do that they belong to."""
    monkeypatch.setenv("RERANK_API_KEYS", "a-key-of-this-server")
    with serving(folder) as started:
        asked = f"{started.url}/v1/document?row=0&doc_id=a"
        assert httpx.get(asked).status_code == 401
        keyed = {"Authorization": "Bearer a-key-of-this-server"}
        assert httpx.get(asked, headers=keyed).status_code == 409
