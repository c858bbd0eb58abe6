"""Preferences of the device and of its user."""

from __future__ import annotations

from typing import cast

from . import types
from ._http import Http


class Preferences:
    """Which notifications arrive, and how: docs/preferences.md. Get it as `Noroshi.preferences`."""

    def __init__(self, http: Http, path: str) -> None:
        self._http = http
        self._path = path

    async def get(self) -> types.Preferences:
        return cast("types.Preferences", await self._http.json("GET", self._path))

    async def set(self, preferences: types.Preferences) -> types.Preferences:
        """Replaces them; returns them as stored."""
        return cast("types.Preferences", await self._http.json("PUT", self._path, body=preferences))

    async def delete(self) -> None:
        await self._http.request("DELETE", self._path)
