"""The package imports its service on first access, and has nothing else to offer."""

from __future__ import annotations

import pytest

import hearthnet_rag
from hearthnet_rag.service import RagService


def test_package_has_the_service_and_no_other_attribute() -> None:
    assert hearthnet_rag.RagService is RagService
    with pytest.raises(AttributeError, match="'hearthnet_rag' has no attribute 'Rag'"):
        hearthnet_rag.Rag  # noqa: B018
