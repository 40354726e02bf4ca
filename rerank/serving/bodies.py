"""Reads the body of a request as JSON, and the parameters of its address, strictly.

It knows nothing of fields.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from rerank.errors import nearest
from rerank.serving.refusals import SHOWN, Refusal
from rerank.storage.files import InfiniteNumberError, RepeatedKeyError, loads


class StrictRoute(APIRoute):
    """A route whose body may hold no key twice, like a row of a file.

    Its address may hold no parameter that the route does not read.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, which gets a `BodyRequest`."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            known = [parameter.alias for parameter in self.dependant.query_params]
            _check_parameters(request.query_params, known)
            return await handle(BodyRequest(request.scope, request.receive))

        return strict


class BodyRequest(Request):
    """A request whose `json` refuses with 422 a repeated key, NaN and infinities."""

    async def json(self) -> Any:
        """The value of the body."""
        try:
            return loads(await self.body())
        except RepeatedKeyError as error:
            key = ascii(error.key[:SHOWN])
            message = f"the body has the key {key} twice in one object; give it once"
            raise HTTPException(422, message) from None
        except InfiniteNumberError as error:
            raise HTTPException(422, f"the body has {error}; give a number or null") from None


def _check_parameters(given: Iterable[str], known: list[str]) -> None:
    """Refuse with 422 a parameter that is not known."""
    for name in given:
        if name not in known:
            cut = name[:SHOWN]
            all_known = f"this route has {', '.join(known) or 'none'}"
            ending = nearest(cut.lower(), known) or f"; {all_known}"
            raise Refusal(422, f"unknown parameter {cut!a} in the address{ending}", reason="input")
