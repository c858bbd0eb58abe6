"""FCM against Google's publications: the discovery document of FCM v1, in PyPI's `google-api-python-client`, defines
every field; and `firebase-admin`, Google's own sender, pushes to the fake and understands its answers."""

import importlib.util
import json
import re
from pathlib import Path

import firebase_admin
import google.auth.transport.requests
import google.oauth2.service_account
import pytest
from firebase_admin import exceptions, messaging

from node import DEADLINE_S, Node
from push import DevPush

DOCUMENTS = Path(importlib.util.find_spec("googleapiclient").origin).parent / "discovery_cache" / "documents"
SCHEMAS = json.loads((DOCUMENTS / "fcm.v1.json").read_text())["schemas"]
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
FORMS = {
    "google-duration": re.compile(r"-?\d+(\.\d{1,9})?s"),
    "google-datetime": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"),
}


def complaints(value, schema: dict, path: str) -> list[str]:
    """The differences of a JSON value from the document. An unknown field is an error: FCM rejects the request."""
    if "$ref" in schema:
        schema = {"type": "object", **SCHEMAS[schema["$ref"]]}
    kind = schema["type"]
    if kind == "object":
        if not isinstance(value, dict):
            return [f"{path} is no object"]
        fields, others, found = schema.get("properties", {}), schema.get("additionalProperties"), []
        for name, inner in value.items():
            field = fields.get(name, others)
            found += complaints(inner, field, f"{path}.{name}") if field else [f"{path} has no {name}"]
        return found
    if kind == "array":
        if not isinstance(value, list):
            return [f"{path} is no list"]
        return [one for n, inner in enumerate(value) for one in complaints(inner, schema["items"], f"{path}[{n}]")]
    if kind == "any":
        return []
    types = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}
    if not isinstance(value, types[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return [f"{path} is no {kind}: {value!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{path} is none of {schema['enum']}: {value!r}"]
    form = FORMS.get(schema.get("format"))
    return [f"{path} is no {schema['format']}: {value!r}"] if form and not form.fullmatch(value) else []


def request_complaints(body: dict) -> list[str]:
    return complaints(body, {"$ref": "SendMessageRequest"}, "request")


@pytest.fixture(scope="module")
def fakes():
    fakes = DevPush()
    yield fakes
    fakes.stop()


@pytest.fixture(scope="module")
def node(fakes):
    node = Node("--set", f"egress.ca_file={fakes.info['ca_file']}")
    node.add_credential(fakes.info["credentials"]["fcm"])
    yield node
    node.stop()


def test_the_document_is_checked_strictly():
    for body in [
        {"message": {"priority": "HIGH"}},
        {"message": {"android": {"priority": "urgent"}}},
        {"message": {"android": {"ttl": 5}}},
        {"message": {"android": {"ttl": "1h"}}},
        {"message": {"androidV2": {"priority": "HIGH"}}},
        {"message": {"data": {"n": 1}}},
        {"message": {"apns": {"headers": {"apns-priority": 10}}}},
        {"message": {"android": {"notification": {"bodyLocArgs": "x"}}}},
        {"message": {"android": {"notification": {"sticky": 1}}}},
        {"message": []},
    ]:
        assert len(request_complaints(body)) == 1, body
    assert request_complaints({"message": {"webpush": {"notification": {"any": [1]}}}, "validateOnly": True}) == []


MESSAGES = {
    "all that is shown": {
        "notification": {"title": "狼煙", "body": "b", "image": "https://e.example/i.png", "url": "https://e.example/?a=b"},
        "data": {"text": "t", "n": 1.5, "list": [1, None], "flag": True, "deep": {"a": "b"}, "none": None, "notification": 1},
    },
    "data alone": {"data": {"n": 1}},
    "data that are no object": {"data": ["a", 1]},
    "a title alone": {"notification": {"title": "t"}},
    "very low": {"notification": {"title": "t"}, "urgency": "very-low"},
    "low": {"notification": {"title": "t"}, "urgency": "low"},
    "high and collapsible": {"notification": {"title": "t"}, "urgency": "high", "collapse_key": "an order: № 1"},
    "a week": {"notification": {"title": "t"}, "ttl": "7d"},
    "the provider's own, in snake case": {
        "notification": {"title": "t"},
        "push": {
            "fcm": {
                "android": {
                    "restricted_package_name": "com.example.app",
                    "direct_boot_ok": True,
                    "notification": {
                        "channel_id": "c",
                        "notification_priority": "PRIORITY_HIGH",
                        "default_sound": True,
                        "notification_count": 3,
                        "vibrate_timings": ["0.5s", "1s"],
                        "body_loc_args": ["a"],
                        "light_settings": {"color": {"red": 1, "alpha": 0.5}, "light_on_duration": "1s", "light_off_duration": "2s"},
                    },
                    "fcm_options": {"analytics_label": "l"},
                },
                "apns": {"headers": {"apns-priority": "5"}, "payload": {"aps": {"badge": 1, "sound": "default"}}},
                "webpush": {"notification": {"renotify": True, "tag": "x"}, "fcm_options": {"link": "https://e.example/"}},
                "fcm_options": {"analytics_label": "l"},
            }
        },
    },
    "a background sync of Android's second kind": {
        "data": {"n": 1},
        "urgency": "high",
        "collapse_key": "k",
        "push": {"fcm": {"android_v2": {"background_sync": {}}}},
    },
    "a notification of Android's second kind": {
        "notification": {"title": "t"},
        "push": {"fcm": {"androidV2": {"remoteNotification": {"mutableContent": True, "notification": {"id": 7, "title": "own"}}}}},
    },
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES.keys())
def test_requests_conform_to_googles_document(node, fakes, message):
    token = fakes.token("fcm")
    device = node.register(push_token=token)["device"]
    push = {"mode": "always", **message.get("push", {})}
    made = node.publish(**{**message, "to": {"devices": [device]}, "push": push})["id"]
    node.outcome(made, device, "pushed")
    [got] = fakes.received("fcm", token["token"])
    body = json.loads(got["payload"])
    assert request_complaints(body) == []
    assert got["status"] == 200
    sent = body["message"]
    assert (sent["token"], sent["data"]["noroshi_id"]) == (token["token"], made)
    for name, value in message.get("notification", {}).items():
        assert sent["data"]["noroshi_url"] == value if name == "url" else sent["notification"][name] == value


# -- the fake, against the document --------------------------------------------------------------

SAMPLES = {"google-duration": "3.5s", "google-datetime": "2030-01-02T03:04:05Z"}
# Targets, of which a message has one; and fields that FCM writes itself.
NOT_SENT = {"fid", "topic", "condition", "token", "name"}


def samples(schema: dict, name: str = ""):
    """For every field below the schema, a value with only this field set."""
    if "$ref" in schema:
        schema = {"type": "object", **SCHEMAS[schema["$ref"]]}
    kind = schema["type"]
    if kind == "object" and schema.get("properties"):
        for field, inner in schema["properties"].items():
            for value in samples(inner, field):
                yield {field: value}
    elif kind == "object":
        extra = schema.get("additionalProperties")
        yield {} if extra is None else {"k": "v"} if extra["type"] == "string" else {"k": {"n": [1]}}
    elif kind == "array":
        yield from ([one] for one in samples(schema["items"], name))
    elif "enum" in schema:
        yield from schema["enum"]
    else:
        text = "#00ff00" if name == "color" else SAMPLES.get(schema.get("format"), "text")
        yield {"string": text, "boolean": True, "integer": 3, "number": 0.5}[kind]


@pytest.fixture(scope="module")
def environment(fakes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REQUESTS_CA_BUNDLE", fakes.info["ca_file"])
        patch.setenv("NO_PROXY", "localhost,127.0.0.1")
        # firebase-admin has no setting for this.
        origin = fakes.info["origins"]["fcm"]
        patch.setattr(messaging._MessagingService, "FCM_URL", origin + "/v1/projects/{0}/messages:send")
        yield patch


def account(fakes) -> dict:
    return fakes.info["credentials"]["fcm"]["service_account"]


def test_the_fake_accepts_every_field_of_the_document(fakes, environment):
    """Uses google-auth, so that the access token comes from it too."""
    found = google.oauth2.service_account.Credentials.from_service_account_info(account(fakes), scopes=[SCOPE])
    token = fakes.token("fcm")["token"]
    url = messaging._MessagingService.FCM_URL.format(account(fakes)["project_id"])
    tried = 0
    with google.auth.transport.requests.AuthorizedSession(found) as session:
        for sample in samples({"$ref": "Message"}):
            if NOT_SENT & sample.keys():
                continue
            message = {"token": token, **sample}
            assert request_complaints({"message": message}) == []
            answer = session.post(url, json={"message": message}, timeout=DEADLINE_S)
            assert answer.status_code == 200, (sample, answer.text)
            tried += 1
    assert tried > 100


# -- firebase-admin ------------------------------------------------------------------------------

# Google prefers installation ids; during a transition tokens are accepted as ids.
pytestmark = pytest.mark.filterwarnings("ignore:Message.token is deprecated")


@pytest.fixture(scope="module")
def app(fakes, environment):
    app = firebase_admin.initialize_app(firebase_admin.credentials.Certificate(account(fakes)), name="e2e")
    yield app
    firebase_admin.delete_app(app)


def test_the_fake_accepts_messages_of_firebase_admin(fakes, app):
    token = fakes.token("fcm")["token"]
    light = messaging.LightSettings(color="#aabbcc", light_on_duration_millis=200, light_off_duration_millis=300)
    shown = messaging.AndroidNotification(
        title="t", color="#00ff00", channel_id="c", priority="high", visibility="public", light_settings=light, vibrate_timings_millis=[100]
    )
    aps = messaging.Aps(alert=messaging.ApsAlert(title="t", body="b"), badge=1, sound="default", thread_id="x")
    message = messaging.Message(
        token=token,
        notification=messaging.Notification(title="狼煙", body="b"),
        data={"k": "v"},
        android=messaging.AndroidConfig(priority="high", ttl=3_600, collapse_key="k", notification=shown),
        apns=messaging.APNSConfig(headers={"apns-priority": "10"}, payload=messaging.APNSPayload(aps=aps)),
        webpush=messaging.WebpushConfig(headers={"TTL": "60"}, notification=messaging.WebpushNotification(title="t", renotify=True)),
        fcm_options=messaging.FCMOptions(analytics_label="l"),
    )
    name = messaging.send(message, app=app)
    assert name.startswith(f"projects/{account(fakes)['project_id']}/messages/")
    [got] = fakes.received("fcm", token)
    assert json.loads(got["payload"])["message"]["notification"]["title"] == "狼煙"


def test_firebase_admin_understands_the_answer_for_each_token(fakes, app):
    states = ["registered", {"unregistered": {"at_ms": 1}}, "foreign"]
    tokens = [fakes.token("fcm", state=state)["token"] for state in states]
    answers = messaging.send_each([messaging.Message(token=token, data={"k": "v"}) for token in [*tokens, "x" * 140]], app=app)
    errors = [type(answer.exception) for answer in answers.responses]
    wanted = [type(None), messaging.UnregisteredError, messaging.SenderIdMismatchError, exceptions.InvalidArgumentError]
    assert errors == wanted, [str(answer.exception) for answer in answers.responses]


def told(fakes, token: str, script: dict) -> None:
    answer = fakes.control.post("/behave", json={"service": "fcm", "tokens": {token: script}})
    assert answer.status_code == 204, answer.text


@pytest.mark.parametrize(
    "status, error",
    [
        (401, messaging.ThirdPartyAuthError),
        (429, messaging.QuotaExceededError),
        (403, messaging.SenderIdMismatchError),
        (404, messaging.UnregisteredError),
        (400, exceptions.InvalidArgumentError),
    ],
)
def test_firebase_admin_understands_configured_errors(fakes, app, status, error):
    token = fakes.token("fcm")["token"]
    told(fakes, token, {"status": status})
    with pytest.raises(error):
        messaging.send(messaging.Message(token=token, data={"k": "v"}), app=app)


def test_firebase_admin_retries_when_the_fake_is_unavailable(fakes, app):
    token = fakes.token("fcm")["token"]
    told(fakes, token, {"status": 503, "count": 1})
    messaging.send(messaging.Message(token=token, data={"k": "v"}), app=app)
    assert [one["status"] for one in fakes.received("fcm", token)] == [503, 200]
