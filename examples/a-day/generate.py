"""Generates a company's devices and one day of its notifications; the same seed gives the same files.

    python3 generate.py FOLDER [--devices 3000] [--seed 1]

writes FOLDER/devices.ndjson (one device per line, in the format of `noroshi import devices`) and FOLDER/day.ndjson
(one notification per line, in the format of `POST /v1/notifications/batch`, 24 hours in order). Each notification's
`data` contains its hour and number, so that recipients can be checked.
"""

import argparse
import json
import random
from pathlib import Path

TOPICS = {"news": 0.6, "sports": 0.4, "weather": 0.5, "game": 0.3, "status": 1.0}
HOURS = 24
#: Lifetime of the flash sale: long enough for connected devices, over before the evening.
SHORT_TTL_S = 5


def devices(count: int, rng: random.Random) -> list[dict]:
    """Two thirds of the users have one device, the others two."""
    generated = []
    user = 0
    while len(generated) < count:
        user += 1
        for part in range(1 if rng.random() < 2 / 3 else 2):
            generated.append(
                {
                    "device": f"d{user:05}-{part}",
                    "user": f"u{user:05}",
                    "platform": rng.choice(["ios", "android", "web", "console"]),
                    "locale": rng.choice(["ja-JP", "en-GB", "de-DE"]),
                    "tags": {"plan": rng.choice(["free", "paid"])},
                    "topics": [topic for topic, share in TOPICS.items() if rng.random() < share],
                }
            )
    return generated[:count]


def day(all_devices: list[dict], rng: random.Random) -> list[dict]:
    """Every policy and every kind of target, in the mix of a news and games company."""
    users = sorted({device["user"] for device in all_devices})
    lines = []

    def add(hour: int, to: dict, title: str, **more) -> None:
        data = {"hour": hour, "n": len(lines)}
        lines.append({"to": to, "notification": {"title": title}, "data": data, **more})

    def some(count: int) -> dict:
        return {"users": rng.sample(users, count)}

    for hour in range(HOURS):
        # Only for users who play or read now: a friend came online, the match is live.
        for _ in range(4):
            add(hour, some(120), "A friend is online", when="active", urgency="low")
            add(hour, some(120), "Your match is live", when="connected")
        # Must arrive at any time: orders, replies; to all devices of users or to single devices.
        for _ in range(6):
            add(hour, some(150), "Your order moved", when="stored", ttl="24h")
        chosen = rng.sample(all_devices, 60)
        add(hour, {"devices": [device["device"] for device in chosen]}, "Download finished", when="stored")
        # Only the latest score matters; and an offer that ends before the evening.
        add(hour, some(400), "Your league score", when="stored", collapse_key="score")
        add(hour, some(100), "Flash sale", when="stored", ttl=SHORT_TTL_S)
        # Topics: stored, live only, and a retained notice for every log-in.
        add(hour, {"topic": "news"}, "News", when="stored")
        add(hour, {"topic": "sports"}, "Goal!", when="connected", urgency="high")
        add(hour, {"topic": "weather"}, "Forecast", when="stored", collapse_key="forecast")
        if hour % 6 == 0:
            add(hour, {"topic": "status"}, "All systems up", when="connected", retain=True)
        # Conditions over topics, and everyone.
        add(hour, {"condition": "'news' in topics && !('sports' in topics)"}, "For readers", when="stored")
        add(hour, {"condition": "'game' in topics || 'sports' in topics"}, "For players", when="connected")
        if hour in (9, 18):
            add(hour, {"everyone": True}, "System update", when="stored")
        if hour == 12:
            add(hour, {"everyone": True}, "Lunch-time event starts now", when="connected")
    return lines


def write(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def generate(folder: Path, count: int, seed: int) -> None:
    rng = random.Random(seed)
    all_devices = devices(count, rng)
    write(folder / "devices.ndjson", all_devices)
    write(folder / "day.ndjson", day(all_devices, rng))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    generate(arguments.folder, arguments.devices, arguments.seed)
    for name in ("devices.ndjson", "day.ndjson"):
        path = arguments.folder / name
        print(f"{path}: {sum(1 for _ in path.open())} lines, {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
