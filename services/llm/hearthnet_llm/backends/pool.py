"""The models behind URLs: configured ones, data of their servers, and availability.

Models of one server share one watch: a request every 30 s whose body is not read, sooner after a failed call,
with growing pauses while the server does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hearthnet import HearthNetError
from hearthnet.core import ModelConfig, TaskSet
from hearthnet.models import ServerWatch
from hearthnet_llm.backends import backend_kinds
from hearthnet_llm.backends.endpoint import ModelEndpoint, is_unavailable
from hearthnet_llm.backends.http_backend import Remote
from hearthnet_llm.backends.probe import ProbeCache
from hearthnet_llm.media import ImageFitter
from hearthnet_llm.vendors.catalog import CatalogEntry

_log = logging.getLogger(__name__)
_CLOSE_SECONDS: Final = 10.0


class _Server:
    """One server, the configured models on it, and the task that watches it."""

    def __init__(self, config: ModelConfig) -> None:
        self.endpoint = ModelEndpoint(config)
        self.watch = ServerWatch()
        self.models: dict[ModelConfig, Remote] = {}
        self.problem = ""
        self.fresh: set[ModelConfig] = set()
        self.looked = asyncio.Event()
        self.again = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Pool:
    """The models behind URLs.

    `changed` is called whenever offers may have changed. All models share the process that decodes images.
    """

    def __init__(self, memory: ProbeCache, changed: Callable[[], None]) -> None:
        self._memory = memory
        self._fitter = ImageFitter()
        self._changed = changed
        self._configs: tuple[ModelConfig, ...] = ()
        self._servers: dict[tuple[str, ...], _Server] = {}
        self._tasks = TaskSet()

    @property
    def there(self) -> list[Remote]:
        """The available models, in the order of the config."""
        return [remote for server, remote in self._all() if server.watch.there]

    @property
    def configured(self) -> bool:
        """True if the config names any model."""
        return bool(self._configs)

    @property
    def away(self) -> dict[str, str]:
        """The reason of each unavailable model, by name; empty until its server was probed."""
        return {remote.config.name: problem for remote, there, problem in self.states if not there}

    @property
    def states(self) -> list[tuple[Remote, bool, str]]:
        """Every model of the config, its availability, and the reason if it is unavailable."""
        return [(remote, server.watch.there, server.problem) for server, remote in self._all()]

    def use(self, configs: Sequence[ModelConfig]) -> None:
        """Use exactly these models from now on; running calls of other models may end."""
        self._configs = tuple(dict.fromkeys(configs))
        places = {_place(config) for config in self._configs}
        for place in [place for place in self._servers if place not in places]:
            self._drop(self._servers.pop(place))
        for config in self._configs:
            self._want(config)
        for server in self._servers.values():
            for config in [config for config in server.models if config not in self._configs]:
                self._retire(server.models.pop(config))

    async def settle(self, seconds: float) -> None:
        """Wait until each server was probed, for at most `seconds`."""
        looks = [asyncio.create_task(server.looked.wait()) for server in self._servers.values()]
        if looks:
            _, late = await asyncio.wait(looks, timeout=seconds)
            for look in late:
                look.cancel()

    def failed(self, remote: Remote, error: HearthNetError) -> None:
        """Probe the model's server at once if the error may mean that it is gone."""
        server = self._servers.get(_place(remote.config))
        if server is not None and is_unavailable(error):
            server.again.set()

    def learn_tools(self, remote: Remote, tools: bool) -> None:
        """Record whether the model calls tools, and update its profile."""
        self._memory.keep(remote.config, tools)
        server = self._servers.get(_place(remote.config))
        if server is not None:
            server.fresh.add(remote.config)
            server.again.set()

    async def close(self) -> None:
        """Close all models and servers."""
        servers, self._servers, self._configs = list(self._servers.values()), {}, ()
        for server in servers:
            self._drop(server)
        await self._tasks.finish(_CLOSE_SECONDS)
        self._fitter.close()

    def _all(self) -> list[tuple[_Server, Remote]]:
        found = ((self._servers.get(_place(config)), config) for config in self._configs)
        return [(server, server.models[config]) for server, config in found if server is not None]

    def _want(self, config: ModelConfig) -> None:
        place = _place(config)
        server = self._servers.get(place)
        if server is None:
            server = self._servers[place] = _Server(config)
            server.task = asyncio.create_task(
                self._follow(server), name=f"watch {backend_kinds.root(config)}"
            )
        if config not in server.models:
            server.models[config] = Remote(config, self._fitter)
            server.fresh.add(config)
            server.looked.clear()
            server.again.set()

    def _drop(self, server: _Server) -> None:
        if server.task is not None:
            server.task.cancel()
        self._tasks.start(server.endpoint.aclose(), "close a server")
        for remote in server.models.values():
            self._retire(remote)

    def _retire(self, remote: Remote) -> None:
        self._tasks.start(remote.retire(), f"retire {remote.config.name}")

    async def _follow(self, server: _Server) -> None:
        """Probe the server repeatedly, until cancelled."""
        while True:
            server.again.clear()
            before = server.watch.there
            changed = await self._look(server)
            server.looked.set()
            if changed or before != server.watch.there:
                self._changed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(server.watch.wait_seconds):
                    await server.again.wait()

    async def _look(self, server: _Server) -> bool:
        """Probe the server once; return whether a profile has changed."""
        fresh = set(server.fresh) if server.watch.there else set(server.models)
        changed = False
        try:
            if fresh:
                changed = await self._update_profiles(server, fresh)
            else:
                await server.endpoint.reach()
        except HearthNetError as error:
            if is_unavailable(error) or _lacks_key(error):
                server.problem = error.message
                server.watch.failed(time.monotonic())
                return False
            _log.info("%s", error.message)
        if not server.watch.there:
            self._tasks.start(_warm(server), "warm up")
        server.fresh -= fresh
        server.problem = ""
        server.watch.seen(time.monotonic())
        return changed

    async def _update_profiles(self, server: _Server, fresh: set[ModelConfig]) -> bool:
        """Update the models' profiles by data of their server, which may have none."""
        listed: dict[str, CatalogEntry] = {}
        with _unless_unavailable():
            listed = {model.name: model for model in await server.endpoint.models()}
        program = next((model.server for model in listed.values() if model.server), None)
        changed = False
        for config in fresh & server.models.keys():
            entry = listed.get(config.model, CatalogEntry(config.model, server=program))
            with _unless_unavailable():
                entry = await server.endpoint.described(entry)
            entry = entry.refined(CatalogEntry(config.model, tools=self._memory.tools(config)))
            remote = server.models.get(config)
            changed = (remote is not None and remote.learn(entry)) or changed
        return changed


async def _warm(server: _Server) -> None:
    """Warm up the first model of a new server; a second one may not fit into its memory."""
    for remote in list(server.models.values())[:1]:
        try:
            await remote.warm()
        except HearthNetError as error:
            _log.info("%s", error.message)


def _place(config: ModelConfig) -> tuple[str, ...]:
    """Return the identity of the config's server."""
    return config.kind, config.url, config.api_key_env or "", config.api_version


def _lacks_key(error: HearthNetError) -> bool:
    """Return whether the key is missing: then no server was called, and no status is set."""
    return error.code == "unauthorized" and "status" not in error.details


@contextlib.contextmanager
def _unless_unavailable() -> Iterator[None]:
    """Ignore errors of a server that answers."""
    try:
        yield
    except HearthNetError as error:
        if is_unavailable(error) or _lacks_key(error):
            raise
        _log.info("%s", error.message)
