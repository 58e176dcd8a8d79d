"""A server of models behind a URL: its list of models, and its availability."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from hearthnet import HearthNetError
from hearthnet.core import ModelConfig
from hearthnet.models import ModelHttpClient, ResponseBody, without_login
from hearthnet_llm.backends import aws, backend_kinds
from hearthnet_llm.backends.backend_kinds import KINDS
from hearthnet_llm.vendors import catalog
from hearthnet_llm.vendors.catalog import CatalogEntry
from hearthnet_llm.vendors.wire import HttpRequest

LOOK_SECONDS: Final = 5.0
"""Limit for listing models and for probing."""
_OLLAMA: Final = "/api/version"
_UNAVAILABLE_CODES: Final = ("partition", "timeout", "capacity_exceeded")
_UNAVAILABLE_STATUS: Final = (502, 503, 504)
"""Status of a proxy whose server is gone, and of a server that is still loading."""


def connect(config: ModelConfig) -> ModelHttpClient:
    """Return a connection to the server of `config`."""
    _, login = without_login(config.url)
    signed = KINDS[config.kind].signed and not config.api_key_env
    sign = aws.Signatures(config.name) if signed else None
    return ModelHttpClient(
        config.name, config.api_key_env or "", backend_kinds.key_header(config), login, sign
    )


def is_unavailable(error: HearthNetError) -> bool:
    """Return whether the failure means that the server cannot serve any call now."""
    return error.code in _UNAVAILABLE_CODES or error.details.get("status") in _UNAVAILABLE_STATUS


class ModelEndpoint:
    """One server, as the config of one of its models reaches it."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._listing = KINDS[config.kind].listing
        self._root = backend_kinds.root(config)
        self._connection = connect(config)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def reach(self) -> None:
        """Probe the server by requesting its list; of a server without one, any answer suffices.

        Raises:
            HearthNetError: the server's error, or that of its absence.
        """
        try:
            async with self._request(self._listing.path):
                pass
        except HearthNetError as error:
            if self._listing.path or "status" not in error.details or is_unavailable(error):
                raise

    async def models(self) -> list[CatalogEntry]:
        """Return the models of the server.

        Raises:
            HearthNetError: with a remedy, `not_found` if the address has no list of models; `internal_error`
                if the response is none.
        """
        if not self._listing.path:
            await self.reach()
            return []
        found = catalog.models(await self._fetch_json(self._listing.path))
        if found is None:
            raise HearthNetError(
                "internal_error",
                f"{self._config.name}: {self._where} answered JSON that is no list of models; "
                "check the address",
            )
        return found

    async def described(self, listed: CatalogEntry) -> CatalogEntry:
        """Return the model with all data that its server has of it, at least those of the list."""
        name = listed.name
        if self._listing.details:
            details = await self._fetch_json(self._listing.details, {"model": name})
            listed = listed.refined(catalog.described(name, details))
        if self._listing.loaded:
            listed = listed.refined(catalog.in_use(name, await self._fetch_json(self._listing.loaded)))
        return listed

    async def is_ollama(self) -> bool:
        """Return whether it is an Ollama, which has a path of its own for its version."""
        answer = await self._fetch_json(_OLLAMA)
        return isinstance(answer, dict) and set(answer) == {"version"}

    @property
    def _where(self) -> str:
        return self._root + self._listing.path.partition("?")[0]

    async def _fetch_json(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = bytearray()
        async with self._request(path, body) as answer:
            async for piece in answer.pieces():
                data += piece
        try:
            return json.loads(bytes(data))
        except ValueError as error:
            what = "an HTML page" if data.lstrip()[:1] == b"<" else "no JSON"
            raise HearthNetError(
                "internal_error",
                f"{self._config.name}: {self._where} answered {what}, so no model's server is met there; "
                "check the address: it mostly ends in /v1",
            ) from error

    @asynccontextmanager
    async def _request(
        self, path: str, body: dict[str, Any] | None = None
    ) -> AsyncGenerator[ResponseBody, None]:
        method = "GET" if body is None else "POST"
        version = f"?api-version={self._config.api_version}" if self._config.api_version else ""
        request = HttpRequest(method, self._root + path + version, body or {}, self._listing.headers)
        try:
            async with asyncio.timeout(LOOK_SECONDS), self._connection.post(request) as answer:
                yield answer
        except TimeoutError as error:
            raise HearthNetError(
                "timeout", f"{self._config.name}: {self._where} does not answer; is its server busy or gone?"
            ) from error
