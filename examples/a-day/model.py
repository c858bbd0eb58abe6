"""Computes from the files alone, without the server, what each device must receive.

There are four groups of devices:

    active    connected all day, presence active
    idle      connected all day, presence idle
    evening   offline all day, logs in at the end
    absent    never connects

Each notification reaches a device live, waits for it, or misses it for one reason.
"""

from collections import defaultdict

import generate

ACTIVE, IDLE, EVENING, ABSENT = "active", "idle", "evening", "absent"
GROUPS = (ACTIVE, IDLE, EVENING, ABSENT)

LIVE, WAITING = "live", "waiting"
INACTIVE, OFFLINE, EXPIRED, REPLACED = "inactive", "offline", "expired", "replaced"
REASONS = (INACTIVE, OFFLINE, EXPIRED, REPLACED)


class Day:
    def __init__(self, devices: list[dict], notifications: list[dict], groups: dict[str, str]) -> None:
        self.devices = {device["device"]: device for device in devices}
        self.notifications = notifications
        self.groups = groups
        self.by_user = defaultdict(list)
        for device in devices:
            self.by_user[device["user"]].append(device["device"])
        self.recipients = [self._recipients(notification["to"]) for notification in notifications]
        #: device → notification number → LIVE, WAITING or a reason
        self.fate: dict[str, dict[int, str]] = {device: self._fates(device) for device in self.devices}

    def _recipients(self, to: dict) -> set[str]:
        [(kind, value)] = to.items()
        if kind == "users":
            return {device for user in value for device in self.by_user[user]}
        if kind == "devices":
            return set(value)
        if kind == "topic":
            return {name for name, device in self.devices.items() if value in device["topics"]}
        if kind == "condition":
            return {name for name, device in self.devices.items() if holds(value, device["topics"])}
        return set(self.devices)

    def _fates(self, device: str) -> dict[int, str]:
        fates = {}
        newest: dict[tuple, int] = {}
        for number, notification in enumerate(self.notifications):
            if device not in self.recipients[number]:
                continue
            fates[number] = fate = first_fate(self.groups[device], notification)
            if fate != WAITING:
                continue
            # A newer notification replaces an older one with the same key: in an inbox if directed, in the
            # topic's log for topics, and as the retained message.
            key = replacement_key(notification)
            if key is not None:
                if key in newest:
                    fates[newest[key]] = REPLACED
                newest[key] = number
            if notification.get("ttl") == generate.SHORT_TTL_S:
                fates[number] = EXPIRED
        return fates

    def numbers(self, device: str, fate: str) -> list[int]:
        return [number for number, found in self.fate[device].items() if found == fate]


def first_fate(group: str, notification: dict) -> str:
    when = notification["when"]
    if group == ACTIVE:
        return LIVE
    if group == IDLE:
        return INACTIVE if when == "active" else LIVE
    return WAITING if when == "stored" or notification.get("retain") else OFFLINE


def replacement_key(notification: dict) -> tuple | None:
    if notification.get("retain"):
        return ("retained", notification["to"]["topic"])
    if "collapse_key" in notification:
        return (notification["to"].get("topic"), notification["collapse_key"])
    return None


def holds(condition: str, topics: list[str]) -> bool:
    """The two conditions of the day, written out instead of parsed, independently of the server."""
    return {
        "'news' in topics && !('sports' in topics)": "news" in topics and "sports" not in topics,
        "'game' in topics || 'sports' in topics": "game" in topics or "sports" in topics,
    }[condition]
