"""The choice of a model and tools for a question, from the offers of the mesh.

See: docs/protocol/agent.md#tools-of-a-request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hearthnet.agent.loop.happened import LOST
from hearthnet.agent.runtime.settings import ToolSettings
from hearthnet.agent.tools.builtin import Availability, available_tools
from hearthnet.agent.tools.providers import for_home
from hearthnet.agent.tools.types import ToolChoice, ToolDefinition
from hearthnet.bus.routing.named_homes import AT
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.cli.output.suggest import unknown
from hearthnet.cli.output.text import one_line
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community.roster import Roster


class ModelOffer:
    """The params of one offer; missing or malformed ones have default values."""

    def __init__(self, params: dict[str, Any]) -> None:
        self._params = params

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._text("model")

    @property
    def names(self) -> list[str]:
        """All names of the model."""
        return [self.name, *self._texts("models")]

    @property
    def backend(self) -> str:
        """The program that runs it."""
        return self._text("backend") or "-"

    @property
    def context(self) -> int:
        """The context length in tokens."""
        value = self._params.get("ctx")
        return value if isinstance(value, int) else 0

    @property
    def languages(self) -> list[str]:
        """The languages in its profile."""
        return self._texts("languages")

    @property
    def tools(self) -> str:
        """The way in which it calls tools: `yes`, `by name` if one must be demanded, or `no`."""
        if not self._params.get("tools_supported"):
            return "no"
        return "by name" if self.by_name_only else "yes"

    @property
    def tools_text(self) -> str:
        """The same for a person; `in text` if it writes its calls in its text."""
        return "in text" if self.tools == "yes" and self._text("tool_mode") == "text" else self.tools

    @property
    def by_name_only(self) -> bool:
        """Return whether a tool must be demanded by name, because the model cannot choose."""
        return self._params.get("tools_by_name_only") is True

    @property
    def advice(self) -> str:
        """One line that a person should read before relying on it."""
        return self._text("advice")

    def _text(self, name: str) -> str:
        value = self._params.get(name)
        return value if isinstance(value, str) else ""

    def _texts(self, name: str) -> list[str]:
        value = self._params.get(name)
        return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


SEARCH: Final = "search_corpus"
_ELSEWHERE: Final = LOST | {
    "rate_limited",
    "capacity_exceeded",
    "internal_error",
    "unauthorized",
    "not_implemented",
}
"""Errors of one model's server after which another model may succeed."""
_USUAL: Final = ToolSettings()
_TRIAL_TOKENS: Final = 320
"""The most tokens of a turn of a model for trying things out: its later text is noise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The model, its tools and its tool choice; `notices` are about unavailable named tools."""

    model: ModelOffer
    tools: tuple[ToolDefinition, ...]
    choice: ToolChoice
    notices: tuple[str, ...] = ()

    def suits(self, other: ModelOffer) -> bool:
        """Return whether `other` could get the same request."""
        if self.choice == "auto":
            return True
        return other.tools == "yes" or (other.tools == "by name" and self.choice != "required")

    def passes_to(self, other: ModelOffer) -> bool:
        """Return whether `other` may answer instead without a question to the person.

        It must be reliable, and as capable with the tools.
        """
        able = not self.tools or other.tools in ("yes", self.model.tools)
        return able and not other.advice and self.suits(other)

    def request(self, text: str) -> dict[str, Any]:
        """Return the body of the chat request."""
        fields: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
        if self.tools:
            fields["tool_choice"] = self.choice
        if self.model.advice:
            fields["max_tokens"] = _TRIAL_TOKENS
        return {"params": {"model": self.model.name}, "input": fields}


def _rank(one: tuple[ModelOffer, bool]) -> tuple[bool, bool, bool]:
    """Return the sort key of a model, the best first.

    Models that choose tools come first, then reliable ones, then this node's own.
    """
    model, foreign = one
    return model.by_name_only, bool(model.advice), foreign


def _away(name: str, others: Sequence[str]) -> HearthNetError:
    """Return the error for a connected model that is not offered now."""
    name = one_line(name)
    message = f"{name} is connected and not offered now; see: hearthnet models test {name}"
    if others:
        message = f"{message}, or go on with another model: --model {one_line(others[0])}"
    return HearthNetError("not_found", message, alt=list(others))


@dataclass(frozen=True, slots=True)
class Offered:
    """The offers of the mesh, for one question.

    `own` is this node's id, `config` the settings file, `connected` are the models in it, `settings` are its
    settings for tools, `fetched` the tools that came with no installation. `node` is the member that carries
    out effects on a single home, if one is named. `roster` has the homes that a corpus may name.
    """

    views: Sequence[OfferView]
    own: str
    config: Path
    connected: Sequence[str] = ()
    settings: ToolSettings = _USUAL
    fetched: Sequence[ToolDefinition] = ()
    node: str = ""
    roster: Roster | None = None

    def plan(self, corpus: str | None, tools: Sequence[str], model: str | None) -> Plan:
        """Return the model and the tools.

        Raises:
            HearthNetError: `not_found` for a corpus, tool or model that is not offered, with the nearest
                names; `bad_request` for tools if they are switched off.
        """
        names = list(dict.fromkeys(tools))
        if names or corpus is not None:
            self.settings.check()
        if corpus is not None:
            self._check_corpus(corpus)
            names = names if SEARCH in names else [SEARCH, *names]
        chosen = self._model(model, with_tools=bool(names))
        if not names:
            return self._free(chosen)
        found = self._tools(names, corpus or self._only_corpus(names, chosen))
        callable_names = [tool.name for tool in found.tools]
        notices = tuple(tool.notice for tool in found.missing)
        return Plan(chosen, tuple(found.tools), self._first(callable_names, corpus, chosen), notices)

    @property
    def corpora(self) -> list[str]:
        """The corpora that can be searched."""
        found = {view.params.get("corpus") for view in self.views if view.capability.name == "rag.query"}
        return sorted(name for name in found if isinstance(name, str))

    def _is_away(self, home: str) -> bool:
        """Return whether a home that a corpus names offers nothing: another one may have a copy."""
        nodes = self.roster.nodes_called(home) if self.roster is not None else []
        return len(nodes) == 1 and nodes[0] not in {view.node for view in self.views}

    def _check_corpus(self, corpus: str) -> None:
        name, _, home = corpus.partition(AT)
        if name not in self.corpora and not (home and self._is_away(home)):
            raise unknown("corpus", corpus, self.corpora, "nobody offers one; see: hearthnet status")

    def _model(self, wanted: str | None, *, with_tools: bool) -> ModelOffer:
        """Return the model called `wanted`, else the best one for tools, then of this node."""
        found = self._models()
        if wanted is not None:
            known = [name for model, _ in found for name in model.names]
            found = [one for one in found if wanted in one[0].names]
            if not found and wanted in self.connected:
                raise _away(wanted, known)
            if not found:
                raise unknown("model", wanted, known, self._no_model())
        if not found:
            raise HearthNetError("not_found", f"no language model is offered: {self._no_model()}")
        able = [one for one in found if one[0].tools != "no"]
        if with_tools and not able:
            raise HearthNetError(
                "not_found", f"{found[0][0].name} cannot call tools; ask without, or connect another model"
            )
        return min(able or found, key=_rank)[0]

    def _models(self) -> list[tuple[ModelOffer, bool]]:
        """Return each model, and whether it is another node's."""
        return [
            (ModelOffer(view.params), view.node != self.own)
            for view in self.views
            if view.capability.name == "llm.chat"
        ]

    def instead(self, error: HearthNetError, plan: Plan, failed: Sequence[str]) -> ModelOffer | None:
        """Return this node's model to use after `error` of the planned and the `failed` ones.

        Models for trying things out are excluded.
        """
        if error.code not in _ELSEWHERE:
            return None
        excluded = {*failed, plan.model.name}
        others = [
            (model, foreign)
            for model, foreign in self._models()
            if not foreign and model.name not in excluded and plan.passes_to(model)
        ]
        return min(others, key=_rank)[0] if others else None

    def explained(self, error: HearthNetError, plan: Plan, failed: Sequence[str] = ()) -> HearthNetError:
        """Return `error`; after the loss of the model's server, with another model, none of `failed`."""
        if error.code not in LOST or error.details.get("model") not in plan.model.names:
            return error
        excluded = {*failed, *plan.model.names}
        others = [one for one in self._models() if one[0].name not in excluded and plan.suits(one[0])]
        if not others:
            return error
        name = min(others, key=_rank)[0].name
        message = f"{error.message}, or go on with another model: --model {one_line(name)}"
        return HearthNetError(error.code, message, details=error.details, alt=[name])

    def _no_model(self) -> str:
        return f"fetch the built-in one with `hearthnet models install`, or connect one in {self.config}"

    def _free(self, model: ModelOffer) -> Plan:
        """Return the plan for a question without named tools.

        A model that can choose gets the default tools that are offered.
        """
        if model.tools != "yes" or not self.settings.enabled:
            return Plan(model, (), "auto")
        tools = available_tools(self.settings.default_set, self.views).tools
        return Plan(model, tuple(for_home(one, self.views, self.own) for one in tools), "auto")

    def _tools(self, names: list[str], corpus: str | None) -> Availability:
        """Return the named tools that can be called now, and the others.

        Raises:
            HearthNetError: `not_found` if none of them can be called.
        """
        bound = {SEARCH: {"corpus": corpus}} if corpus is not None else {}
        fetched = {tool.name: tool for tool in self.fetched if tool.name in names}
        chosen = available_tools([name for name in names if name not in fetched], self.views, bound)
        pinned = [for_home(tool, self.views, self.own, self.node) for tool in chosen.tools]
        if not (chosen.tools or fetched):
            reasons = "; ".join(tool.notice for tool in chosen.missing)
            raise HearthNetError("not_found", f"{reasons}; see: hearthnet tools")
        return Availability([*pinned, *fetched.values()], chosen.missing)

    def _only_corpus(self, names: list[str], model: ModelOffer) -> str | None:
        """Return the corpus to search if none is named: the only one, else the model's choice."""
        if SEARCH not in names:
            return None
        corpora = self.corpora
        if len(corpora) > 1 and model.by_name_only:
            raise HearthNetError(
                "bad_request",
                f"{model.name} cannot choose a corpus; name one with --corpus: {', '.join(corpora)}",
                alt=corpora,
            )
        return corpora[0] if len(corpora) == 1 else None

    def _first(self, names: list[str], corpus: str | None, model: ModelOffer) -> ToolChoice:
        """Return the tool choice of the first turn."""
        if corpus is not None:
            return {"name": SEARCH}
        if len(names) == 1:
            return {"name": names[0]}
        if model.by_name_only:
            raise HearthNetError(
                "bad_request",
                f"{model.name} cannot choose among tools; name one with --tool, or another --model",
            )
        return "required"
