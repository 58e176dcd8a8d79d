"""How large a context a server is asked to keep, where it keeps as much as each request says: Ollama's
num_ctx. Left alone it keeps some 4,096 tokens of any model and forgets the rest of a longer conversation
without a word.

    said by the config, chosen in the model's own file, or loaded     exactly that
    only the most that the model can have is told                     by doubling, as much as is needed

What was once asked for is asked for again, since each change has the server load the model anew.
"""

from __future__ import annotations

from typing import Final

from hearthnet_llm.context import counting
from hearthnet_llm.profile import Profile
from hearthnet_llm.request import ChatRequest
from hearthnet_llm.vendors.catalog import Listed

FIRST: Final = 8192
_SLACK: Final = 1.6
"""Tokens are estimated; a model may count as many more (context/keeping.py)."""
_ANSWER: Final = 2048
"""Tokens that are expected of an answer whose length nobody has bounded."""


class Window:
    """Of one model. `told`: what its server says of it."""

    def __init__(self, told: Listed) -> None:
        self._told = told
        self._asked = 0

    def learn(self, told: Listed) -> Listed:
        """What is to be believed of `told`: what is loaded because it was asked for here is no bound."""
        ours = self._told.most and not told.most and told.ctx == self._asked
        self._told = told.refined(Listed(told.name, self._told.ctx, most=True)) if ours else told
        return self._told

    def of(self, profile: Profile, configured: int | None, request: ChatRequest | None) -> int:
        """Tokens to ask for, never more than `profile` promises; `request` None: to have the model loaded."""
        if configured or not self._told.most:
            return profile.ctx
        self._asked = min(profile.ctx, max(self._asked, _step(request)))
        return self._asked


def _step(request: ChatRequest | None) -> int:
    """The first of 8192, 16384, ... that holds prompt and answer."""
    size = FIRST
    while request is not None and size < needed(request) + (request.max_tokens or _ANSWER):
        size *= 2
    return size


def needed(request: ChatRequest) -> int:
    """Tokens that the prompt may take at most."""
    prompt = counting.of_rest(request) + sum(counting.of_message(one) for one in request.messages)
    return round(prompt * _SLACK)
