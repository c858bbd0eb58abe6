"""The notification centre of the device's user: docs/items.md."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Literal, cast

from ._core import frames
from ._http import Http
from .models import Counts
from .types import Item, Items, ItemsChanged

ItemState = Literal["unread", "read", "archived", "all"]

_IDS_MAX = 100


class Unread:
    """The newest counts."""

    def __init__(self, changed: Callable[[Counts], None]) -> None:
        self._changed = changed
        self.version = 0
        self.counts: Counts | None = None

    def update(self, counts: Counts, version: int | None = None) -> None:
        """U2: an answer whose request began at an earlier version is older than what arrived meanwhile."""
        if version is not None and version != self.version:
            return
        self.version += 1
        is_same = counts == self.counts
        self.counts = counts
        if not is_same:
            self._changed(counts)


class Inbox:
    """Items of the user. Get it as `Noroshi.inbox`."""

    def __init__(self, http: Http, unread: Unread) -> None:
        self._http = http
        self._unread = unread

    @property
    def unread(self) -> int | None:
        """Unread items; `None` until the service has reported them."""
        return None if self._unread.counts is None else self._unread.counts.unread

    @property
    def counts(self) -> Counts | None:
        """Unread items by category; `None` until the service has reported them."""
        return self._unread.counts

    async def list(
        self,
        *,
        state: ItemState | None = None,
        category: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Items:
        """A page of items, newest first. `after` is `next` of the previous page."""
        query = {"state": state, "category": category, "after": after, "limit": None if limit is None else str(limit)}
        return cast("Items", await self._http.json("GET", "/v1/me/items", query=query))

    async def items(
        self, *, state: ItemState | None = None, category: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[Item, None]:
        """All items, newest first, page by page. `limit` is the size of a page."""
        after: str | None = None
        while True:
            page = await self.list(state=state, category=category, limit=limit, after=after)
            for item in page["items"]:
                yield item
            after = page["next"]
            if not after:
                return

    async def mark_read(
        self, ids: str | Iterable[str] = (), *, up_to: str | None = None, category: str | None = None
    ) -> ItemsChanged:
        """Items by their ids, or the item `up_to` and all older ones, of one category if given."""
        return await self._change("read", ids, up_to, category)

    async def mark_unread(
        self, ids: str | Iterable[str] = (), *, up_to: str | None = None, category: str | None = None
    ) -> ItemsChanged:
        return await self._change("unread", ids, up_to, category)

    async def archive(
        self, ids: str | Iterable[str] = (), *, up_to: str | None = None, category: str | None = None
    ) -> ItemsChanged:
        return await self._change("archive", ids, up_to, category)

    async def unarchive(
        self, ids: str | Iterable[str] = (), *, up_to: str | None = None, category: str | None = None
    ) -> ItemsChanged:
        return await self._change("unarchive", ids, up_to, category)

    async def refresh(self) -> Counts:
        """Reads the counts. Every new connection does so if there is a handler of `unread`."""
        version = self._unread.version
        counts = frames.counts(await self._http.json("GET", "/v1/me/items/counts"))
        self._unread.update(counts, version)
        return counts

    async def _change(
        self, action: str, ids: str | Iterable[str], up_to: str | None, category: str | None
    ) -> ItemsChanged:
        if up_to is not None:
            which = {"up_to": up_to} if category is None else {"up_to": up_to, "category": category}
            return await self._patch({"action": action, **which})
        all_ids = [ids] if isinstance(ids, str) else [*ids]
        answer = await self._patch({"action": action, "ids": all_ids[:_IDS_MAX]})
        changed = answer["changed"]
        for start in range(_IDS_MAX, len(all_ids), _IDS_MAX):
            answer = await self._patch({"action": action, "ids": all_ids[start : start + _IDS_MAX]})
            changed += answer["changed"]
        return {**answer, "changed": changed}

    async def _patch(self, body: dict[str, object]) -> ItemsChanged:
        version = self._unread.version
        answer = await self._http.json("PATCH", "/v1/me/items", body=body)
        self._unread.update(frames.counts(answer), version)
        return cast("ItemsChanged", answer)
