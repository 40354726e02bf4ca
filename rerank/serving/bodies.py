"""Reads the body of a request as JSON, strictly. It knows nothing of fields."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from rerank.serving.refusals import SHOWN
from rerank.storage.files import RepeatedKeyError, loads


class BodyRoute(APIRoute):
    """A route whose body may hold no key twice, like a row of a file."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, which gets a `BodyRequest`."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(BodyRequest(request.scope, request.receive))

        return strict


class BodyRequest(Request):
    """A request whose `json` refuses a repeated key with 422."""

    async def json(self) -> Any:
        """The value of the body."""
        try:
            return loads(await self.body())
        except RepeatedKeyError as error:
            said = f"the body has the key {error.key[:SHOWN]!a} twice in one object; give it once"
            raise HTTPException(422, said) from None
