"""What each device has to hear, worked out from the files alone, without asking the server.

Four groups of devices live through the day:

    in use    connected all day, active
    idle      connected all day, said to be idle
    evening   away all day, logs in at the end
    gone      never comes back

and every notification either reaches a device live, waits for it, or misses it for one reason.
"""

from collections import defaultdict

import generate

IN_USE, IDLE, EVENING, GONE = "in use", "idle", "evening", "gone"
GROUPS = (IN_USE, IDLE, EVENING, GONE)

LIVE, WAITING = "live", "waiting"
NOT_IN_USE, AWAY, EXPIRED, REPLACED = "not in use", "away", "expired", "replaced"
REASONS = (NOT_IN_USE, AWAY, EXPIRED, REPLACED)


class Day:
    def __init__(self, devices: list[dict], notifications: list[dict], groups: dict[str, str]) -> None:
        self.devices = {device["device"]: device for device in devices}
        self.notifications = notifications
        self.groups = groups
        self.by_user = defaultdict(list)
        for device in devices:
            self.by_user[device["user"]].append(device["device"])
        self.meant = [self._meant(notification["to"]) for notification in notifications]
        #: device → notification number → LIVE, WAITING or a reason
        self.fate: dict[str, dict[int, str]] = {device: self._fates(device) for device in self.devices}

    def _meant(self, to: dict) -> set[str]:
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
            if device not in self.meant[number]:
                continue
            fates[number] = fate = first_fate(self.groups[device], notification)
            if fate != WAITING:
                continue
            # A newer one with the same key takes the older one's place: in an inbox for directed ones,
            # in the topic's log for topics, and as the retained message.
            key = place(notification)
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
    if group == IN_USE:
        return LIVE
    if group == IDLE:
        return NOT_IN_USE if when == "active" else LIVE
    return WAITING if when == "stored" or notification.get("retain") else AWAY


def place(notification: dict) -> tuple | None:
    if notification.get("retain"):
        return ("retained", notification["to"]["topic"])
    if "collapse_key" in notification:
        return (notification["to"].get("topic"), notification["collapse_key"])
    return None


def holds(condition: str, topics: list[str]) -> bool:
    """The two conditions of the day, spelled out rather than parsed: this is the check, not the server."""
    return {
        "'news' in topics && !('sports' in topics)": "news" in topics and "sports" not in topics,
        "'game' in topics || 'sports' in topics": "game" in topics or "sports" in topics,
    }[condition]
