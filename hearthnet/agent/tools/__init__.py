"""Tool definitions, their selection and availability."""

from __future__ import annotations
