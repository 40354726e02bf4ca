"""Plain JSON of files: what is refused whoever reads it."""

from __future__ import annotations

import math
import re

import pytest

from rerank.errors import FolderError
from rerank.storage.files import InfiniteNumberError, loads, parse_json


@pytest.mark.parametrize("number", ["1e999", "-1e999", "2.0e+400"])
def test_a_number_that_no_float_holds_is_refused(number: str) -> None:
    """As Infinity is, in a model folder, and in a line even where nobody reads the field."""
    text = f'{{"a": [{number}]}}'
    for data in (text, text.replace(number, "Infinity"), text.replace(number, "NaN")):
        with pytest.raises(FolderError, match="x is not JSON"):
            parse_json(data.encode(), "x")
    with pytest.raises(InfiniteNumberError, match=re.escape(number)):
        loads(text, constants=True)
    assert loads('{"a": -Infinity}', constants=True) == {"a": -math.inf}
