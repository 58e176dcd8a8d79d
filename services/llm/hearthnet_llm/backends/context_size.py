"""Size of the context that a server reserves for each request: Ollama's num_ctx.

By default Ollama reserves some 4,096 tokens for any model, and silently forgets the rest of a longer
conversation.

    stated by the config, in the model's own file, or loaded     exactly that size
    only the model's maximum is known                            doubled until the request fits

A size once requested is kept, because each change makes the server load the model again.
"""

from __future__ import annotations

from typing import Final

from hearthnet_llm.context import token_count
from hearthnet_llm.interface.profile import Profile
from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors.catalog import CatalogEntry

FIRST: Final = 8192
_SLACK: Final = 1.6
"""Tokens are estimated; a model may count this many times more (context/keeping.py)."""
_ANSWER: Final = 2048
"""Tokens expected of an answer without `max_tokens`."""


class Window:
    """The context of one model; `told` has its server's data."""

    def __init__(self, told: CatalogEntry) -> None:
        self._told = told
        self._asked = 0

    def learn(self, told: CatalogEntry) -> CatalogEntry:
        """Return the data to use; a context that was loaded by request from here is no limit."""
        ours = self._told.most and not told.most and told.ctx == self._asked
        self._told = told.refined(CatalogEntry(told.name, self._told.ctx, most=True)) if ours else told
        return self._told

    def of(self, profile: Profile, configured: int | None, request: ChatRequest | None) -> int:
        """Return the tokens to request, at most `profile.ctx`; `request` is None for loading only."""
        if configured or not self._told.most:
            return profile.ctx
        self._asked = min(profile.ctx, max(self._asked, _step(request)))
        return self._asked


def _step(request: ChatRequest | None) -> int:
    """Return the first of 8192, 16384, ... that holds prompt and answer."""
    size = FIRST
    while request is not None and size < needed(request) + (request.max_tokens or _ANSWER):
        size *= 2
    return size


def needed(request: ChatRequest) -> int:
    """Return the largest number of tokens that the prompt may take."""
    prompt = token_count.of_rest(request) + sum(token_count.of_message(one) for one in request.messages)
    return round(prompt * _SLACK)
