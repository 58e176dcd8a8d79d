"""What there is in the mesh: searched, described, related and queried by SQL, as the caller may see it."""

from __future__ import annotations

from hearthnet_mesh.service import MeshService

__all__ = ["MeshService"]
