"""`rerank.systems.settings` and `connect`: what is read, and where a key may go."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.errors import InputError
from rerank.systems.settings import KEY, RetrieverSettings, connect_of_model, read_settings

MINIMAL = {"system": "lancedb", "url": "here", "collection": "c", "keyword": "text"}


def test_a_file_is_read(tmp_path: Path) -> None:
    """A folder is seen from the file; what is kept gives equal settings back."""
    path = tmp_path / "r.toml"
    path.write_text(
        'system = "lancedb"\nurl = "tables"\ncollection = "c"\nkeyword = ["a", "b"]\n'
        'vector = "v"\ntimeout = 2\n'
    )
    found = read_settings(path)
    assert found.url == str(tmp_path / "tables")
    assert found.stages == ("keyword", "vector")
    assert found.keyword == ("a", "b")
    assert RetrieverSettings.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"system": "lancdb"}, "did you mean 'lancedb'"),
        ({"colection": "c"}, "`colection` is unknown; did you mean 'collection'"),
        ({"url": ""}, "`url` is empty"),
        ({"id": ""}, "`id` is empty"),
        ({"keyword": ""}, "`keyword` should be a name or a list of names, got|neither"),
        ({"keyword": 3}, "`keyword` should be a name or a list of names, got"),
        ({"keyword": []}, "neither `keyword` nor `vector`"),
        ({"timeout": 0}, "`timeout` should be a number, above 0"),
        ({"timeout": "1"}, "`timeout` should be a number"),
        ({"text": 1}, "`text` should be text"),
        ({"url": "https://me:secret@host"}, "`url` holds a password"),
        ({"url": "http://me:secret@[host:x"}, "`url` holds a password"),
        ({"system": "opensearch", "url": "http://"}, "`url` should be the address of a server"),
        ({"system": "elasticsearch", "url": "http://h:port"}, "the address of a server"),
    ],
)
def test_what_cannot_be_used_is_told(changed: dict[str, object], sentence: str) -> None:
    """One sentence that names the field, and never a password."""
    with pytest.raises(InputError, match=sentence) as told:
        RetrieverSettings.from_dict({**MINIMAL, **changed})
    assert "secret" not in str(told.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    """It is named."""
    with pytest.raises(InputError, match=r"none\.toml: no such file"):
        read_settings(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("system = ")
    with pytest.raises(InputError, match=r"broken\.toml: "):
        read_settings(broken)


def test_a_key_goes_to_no_server_that_a_model_folder_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless the environment names the server too."""
    monkeypatch.setenv(KEY, "secret")
    with pytest.raises(InputError, match="set RERANK_RETRIEVER_URL") as told:
        connect_of_model({**MINIMAL, "url": "https://elsewhere.example"})
    assert "secret" not in str(told.value)
