"""Search, description, relations and SQL queries of the mesh, as the caller may see it."""

from __future__ import annotations

from hearthnet_mesh.service import MeshService

__all__ = ["MeshService"]
