"""Publishes a notification: NOROSHI_KEY=… python publish.py u1 "Hello"."""

import os
import sys

from noroshi_server import Noroshi

user, title = sys.argv[1:]
with Noroshi(os.environ.get("NOROSHI_URL", "http://127.0.0.1:8080"), os.environ["NOROSHI_KEY"]) as noroshi:
    receipt = noroshi.publish({"to": {"users": [user]}, "notification": {"title": title}})
    print(receipt["id"])
