"""A template and values in, one self-contained HTML page out: no network, no scripts.

All values are escaped. It computes nothing and knows nothing of what it shows.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from typing import TYPE_CHECKING, Any

from rerank.errors import optional

if TYPE_CHECKING:
    from jinja2 import Environment


def html_page(template: str, **values: Any) -> str:
    """The page that `templates/<template>.html.j2` makes of the values.

    Raises:
        jinja2.UndefinedError: a value that the template shows is missing.
    """
    return _environment().get_template(f"{template}.html.j2").render(**values)


@cache
def _environment() -> Environment:
    with optional():
        from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rerank.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["base64"] = lambda data: b64encode(data).decode()
    return environment
