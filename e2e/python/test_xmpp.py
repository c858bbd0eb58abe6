"""XMPP with the Python library `slixmpp`, which checks certificates: STARTTLS, direct TLS, PubSub, stream
management, and accounts for conformance suites."""

import asyncio
import json
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path

import httpx
import pytest
import slixmpp
from slixmpp.exceptions import IqError
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import StanzaPath

from node import DEADLINE_S, KEY, Node, free_port


class Secure:
    """A node with a certificate and both listeners, and its API client."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="noroshi-xmpp-"))
        self.cert, key = self.folder / "cert.pem", self.folder / "key.pem"
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        names = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        subprocess.run([*made, *names, "-keyout", key, "-out", self.cert], check=True, capture_output=True)
        self.port, self.tls_port = free_port(), free_port()
        accounts = [flag for name in ("romeo", "juliet") for flag in ("--xmpp-account", f"{name}:{name}-secret")]
        self.node = Node(
            *["--tls-cert", str(self.cert), "--tls-key", str(key), "--set", "xmpp.plaintext=false"],
            *["--xmpp", f"127.0.0.1:{self.port}", "--xmpps", f"127.0.0.1:{self.tls_port}"],
            *["--conformance", *accounts],
        )
        self.node.provider.close()
        self.node.provider = httpx.Client(
            base_url=self.node.http.replace("http:", "https:"),
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=DEADLINE_S,
            verify=ssl.create_default_context(cafile=str(self.cert)),
        )


@pytest.fixture(scope="module")
def secure():
    secure = Secure()
    yield secure
    secure.node.stop()
    shutil.rmtree(secure.folder, ignore_errors=True)


class Client(slixmpp.ClientXMPP):
    """Logged in and available; its received stanzas are in `inbound`."""

    def __init__(
        self, secure: Secure, name: str, password: str, mechanism: str | None = None, resource: str = "py"
    ) -> None:
        super().__init__(f"{name}@localhost/{resource}", password, sasl_mech=mechanism)
        self.ca_certs = str(secure.cert)
        self.inbound: asyncio.Queue = asyncio.Queue()
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        for plugin in ("xep_0030", "xep_0060", "xep_0198", "xep_0199", "xep_0203", "xep_0352"):
            self.register_plugin(plugin)
        self.add_event_handler("session_start", self._start)
        # slixmpp's event `message` only covers messages with a body.
        self.register_handler(Callback("every message", StanzaPath("message"), self.inbound.put_nowait))
        self.add_event_handler("disconnected", lambda _: self.ended.set())

    async def _start(self, _) -> None:
        self.send_presence()
        await self.get_roster()
        self.begun.set()

    async def log_in(self, port: int, direct: bool = False) -> "Client":
        self.enable_direct_tls, self.enable_starttls = direct, not direct
        self.enable_plaintext = False
        self.connect("127.0.0.1", port)
        await asyncio.wait_for(self.begun.wait(), DEADLINE_S)
        return self

    async def next(self):
        return await asyncio.wait_for(self.inbound.get(), DEADLINE_S)

    async def leave(self) -> None:
        await self.disconnect()
        await asyncio.wait_for(self.ended.wait(), DEADLINE_S)


def payload(element) -> dict:
    return json.loads(element.xml.find(".//{urn:xmpp:json:0}json").text)


@pytest.mark.parametrize("direct", [False, True])
def test_a_device_receives_its_inbox_and_topics(secure, direct):
    async def play():
        user = f"py-{direct}"
        device = secure.node.register(user=user, topics=["news"])
        sent = secure.node.publish(to={"users": [user]}, notification={"title": "Hello", "body": "you"})
        port = secure.tls_port if direct else secure.port
        client = await Client(secure, device["device"], device["token"], "PLAIN").log_in(port, direct)
        message = await client.next()
        assert (message["subject"], message["body"], message["id"]) == ("Hello", "you", sent["id"])
        assert payload(message)["notification"] == {"title": "Hello", "body": "you"}
        secure.node.publish(to={"topic": "news"}, data={"n": 1})
        event = await client.next()
        assert event["from"] == "pubsub.localhost" and event["pubsub_event"]["items"]["node"] == "news"
        assert payload(event)["data"] == {"n": 1}
        await client.leave()
        return sent["id"], device["device"]

    notification, device = asyncio.run(play())
    assert secure.node.outcome(notification, device, "acked")


def test_topics_are_nodes(secure):
    async def play():
        secure.node.publish(to={"topic": "weather"}, data="rain", retain=True)
        device = secure.node.register()
        client = await Client(secure, device["device"], device["token"], "PLAIN").log_in(secure.port)
        pubsub = client.plugin["xep_0060"]
        info = await client.plugin["xep_0030"].get_info("pubsub.localhost")
        assert ("pubsub", "service", None, "Topics") in info["disco_info"]["identities"]
        await pubsub.subscribe("pubsub.localhost", "weather", bare=True)
        assert payload(await client.next())["data"] == "rain"
        items = await pubsub.get_items("pubsub.localhost", "weather")
        assert [payload(item)["data"] for item in items["pubsub"]["items"]] == ["rain"]
        held = await pubsub.get_subscriptions("pubsub.localhost")
        assert [one["node"] for one in held["pubsub"]["subscriptions"]] == ["weather"]
        await pubsub.unsubscribe("pubsub.localhost", "weather", subid=None)
        # In conformance mode every device may publish and so create a topic, but no device owns one.
        await pubsub.create_node("pubsub.localhost", "mine")
        for request, condition in [
            (pubsub.create_node("pubsub.localhost", "weather"), "conflict"),
            (pubsub.delete_node("pubsub.localhost", "weather"), "forbidden"),
        ]:
            with pytest.raises(IqError) as refused:
                await request
            assert refused.value.condition == condition
        await client.leave()

    asyncio.run(play())


def test_client_state_sets_the_presence(secure):
    async def play():
        device = secure.node.register(user="csi")
        client = await Client(secure, device["device"], device["token"], "PLAIN").log_in(secure.port)
        client.plugin["xep_0352"].send_inactive()
        await client.plugin["xep_0199"].ping("localhost")
        secure.node.publish(to={"users": ["csi"]}, data=1, when="active")
        secure.node.publish(to={"users": ["csi"]}, data=2, when="connected")
        assert payload(await client.next())["data"] == 2
        client.plugin["xep_0352"].send_active()
        await client.plugin["xep_0199"].ping("localhost")
        secure.node.publish(to={"users": ["csi"]}, data=3, when="active")
        assert payload(await client.next())["data"] == 3
        await client.leave()

    asyncio.run(play())


def test_a_wrong_token_is_reported(secure):
    async def play():
        device = secure.node.register()
        client = Client(secure, device["device"], "nonsense", "PLAIN")
        failed = asyncio.Event()
        client.add_event_handler("failed_auth", lambda _: failed.set())
        client.connect("127.0.0.1", secure.port)
        await asyncio.wait_for(failed.wait(), DEADLINE_S)
        client.abort()

    asyncio.run(play())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256", "PLAIN"])
def test_conformance_accounts_exchange_messages(secure, mechanism):
    async def play():
        romeo = await Client(secure, "romeo", "romeo-secret", mechanism).log_in(secure.port)
        romeo.send_message(mto="juliet@localhost", mbody=f"while you are away {mechanism}", mtype="chat")
        await romeo.plugin["xep_0199"].ping("localhost")
        juliet = await Client(secure, "juliet", "juliet-secret", mechanism).log_in(secure.port)
        waited = await juliet.next()
        assert waited["body"] == f"while you are away {mechanism}" and waited["delay"]["stamp"] is not None
        juliet.send_message(mto="romeo@localhost/py", mbody="now", mtype="chat")
        inbound = await romeo.next()
        assert (inbound["body"], str(inbound["from"])) == ("now", "juliet@localhost/py")
        await romeo.leave()
        await juliet.leave()

    asyncio.run(play())


def test_conformance_accounts_see_each_others_presence(secure):
    async def play():
        romeo = await Client(secure, "romeo", "romeo-secret").log_in(secure.port)
        juliet = await Client(secure, "juliet", "juliet-secret").log_in(secure.port)
        seen: asyncio.Queue = asyncio.Queue()
        for event in ("got_online", "got_offline", "changed_status"):
            romeo.add_event_handler(event, lambda presence, event=event: seen.put_nowait((event, presence)))

        async def sees(event: str, jid: str, show: str = "") -> None:
            while True:
                name, presence = await asyncio.wait_for(seen.get(), DEADLINE_S)
                if (name, str(presence["from"]), presence["show"]) == (event, jid, show):
                    return

        # The library approves requests and subscribes in return.
        romeo.send_presence_subscription(pto="juliet@localhost")
        await sees("got_online", "juliet@localhost/py")
        for client, contact in ((romeo, "juliet@localhost"), (juliet, "romeo@localhost")):
            async with asyncio.timeout(DEADLINE_S):
                while client.client_roster[contact]["subscription"] != "both":
                    await asyncio.sleep(0.02)
        await romeo.update_roster("juliet@localhost", name="Juliet", groups=["Verona"])
        await romeo.get_roster()
        item = romeo.client_roster["juliet@localhost"]
        assert (item["name"], item["groups"], item["subscription"]) == ("Juliet", ["Verona"], "both")
        juliet.send_presence(pshow="away")
        await sees("changed_status", "juliet@localhost/py", "away")
        await juliet.leave()
        await sees("got_offline", "juliet@localhost/py")
        # Clean up for the next test.
        await romeo.del_roster_item("juliet@localhost")
        await romeo.get_roster()
        assert romeo.client_roster["juliet@localhost"]["subscription"] not in ("both", "to", "from")
        await romeo.leave()

    asyncio.run(play())


def test_a_client_that_acknowledges_stays_connected(secure):
    async def play():
        romeo = await Client(secure, "romeo", "romeo-secret").log_in(secure.port)
        juliet = await Client(secure, "juliet", "juliet-secret").log_in(secure.port)
        # Answers to its requests, and stanzas of others: the library answers each request for an acknowledgement.
        for _ in range(25):
            await asyncio.gather(*(romeo.plugin["xep_0199"].ping("localhost") for _ in range(100)))
        for number in range(2_500):
            juliet.send_message(mto="romeo@localhost/py", mbody=str(number), mtype="chat")
        for number in range(2_500):
            assert (await romeo.next())["body"] == str(number)
        await romeo.plugin["xep_0199"].ping("localhost")
        assert not romeo.ended.is_set()
        await romeo.leave()
        await juliet.leave()

    asyncio.run(play())


def test_disco_describes_the_service(secure):
    async def play():
        device = secure.node.register()
        client = Client(secure, device["device"], device["token"], "PLAIN")
        client.register_plugin("xep_0092")
        await client.log_in(secure.port)
        version = (await client.plugin["xep_0092"].get_version("localhost"))["software_version"]
        assert version["name"] == "Noroshi" and version["version"]
        # A client without contacts receives no presence.
        items = await client.plugin["xep_0030"].get_items("romeo@localhost")
        assert not items["disco_items"]["items"]
        await client.leave()

    asyncio.run(play())


def test_a_device_reads_its_inbox_as_its_archive(secure):
    async def play():
        device = secure.node.register(user="archive")
        sent = [secure.node.publish(to={"users": ["archive"]}, data=n)["id"] for n in range(5)]
        client = Client(secure, device["device"], device["token"], "PLAIN")
        client.register_plugin("xep_0313")
        # The client is unavailable: nothing is delivered, so nothing is acknowledged.
        client.send_presence = lambda *_, **__: None
        await client.log_in(secure.port)
        archive = client.plugin["xep_0313"]

        async def read(**rsm) -> tuple[list[str], str]:
            answer = await archive.retrieve(rsm=rsm)
            results = [message["mam_result"] for message in answer["mam"]["results"]]
            bodies = [payload(result["forwarded"]["stanza"])["data"] for result in results]
            assert bodies == [sent.index(result["id"]) for result in results]
            return [result["id"] for result in results], answer["mam_fin"]["rsm"]["count"]

        assert await read() == (sent, "5")
        assert await read(max=2) == (sent[:2], "5")
        assert await read(max=2, after=sent[1]) == (sent[2:4], "5")
        assert await read(max=2, before=sent[4]) == (sent[2:4], "5")
        with pytest.raises(IqError) as refused:
            await read(after="nothing")
        assert refused.value.condition == "item-not-found"
        # Reading acknowledges nothing: all messages remain.
        assert await read() == (sent, "5")
        assert "acked" not in secure.node.provider.get(f"/v1/notifications/{sent[0]}").json()["counts"]
        await client.leave()

    asyncio.run(play())


def test_accounts_have_cards_copies_and_archives(secure):
    async def play():
        async def log_in(name: str, resource: str) -> Client:
            client = Client(secure, name, f"{name}-secret", resource=resource)
            for plugin in ("xep_0054", "xep_0280", "xep_0313"):
                client.register_plugin(plugin)
            return await client.log_in(secure.port)

        romeo, other = await log_in("romeo", "one"), await log_in("romeo", "two")
        juliet = await log_in("juliet", "py")
        card = juliet.plugin["xep_0054"].make_vcard()
        card["FN"] = "Juliet"
        await juliet.plugin["xep_0054"].publish_vcard(card)
        with pytest.raises(IqError) as unknown:
            await romeo.plugin["xep_0054"].get_vcard("juliet@localhost")
        with pytest.raises(IqError) as absent:
            await romeo.plugin["xep_0054"].get_vcard("nobody@localhost")
        assert unknown.value.condition == absent.value.condition == "service-unavailable"
        copies: asyncio.Queue = asyncio.Queue()
        for event in ("carbon_sent", "carbon_received"):
            other.add_event_handler(event, lambda copy, event=event: copies.put_nowait((event, copy[event]["body"])))
        await other.plugin["xep_0280"].enable()
        romeo.send_message(mto="juliet@localhost", mbody="to her", mtype="chat")
        inbound = await juliet.next()
        juliet.send_message(mto="romeo@localhost/one", mbody="to him", mtype="chat")
        assert (await romeo.next())["body"] == "to him"
        for expected in (("carbon_sent", "to her"), ("carbon_received", "to him")):
            assert await asyncio.wait_for(copies.get(), DEADLINE_S) == expected
        pages = juliet.plugin["xep_0313"].retrieve(
            with_jid="romeo@localhost", iterator=True, reverse=True, rsm={"max": 2}
        )
        results = [message["mam_result"] for message in (await anext(aiter(pages)))["mam"]["results"]]
        assert [result["forwarded"]["stanza"]["body"] for result in results] == ["to her", "to him"]
        assert inbound.xml.find("{urn:xmpp:sid:0}stanza-id").get("id") == results[0]["id"]
        for client in (romeo, other, juliet):
            await client.leave()

    asyncio.run(play())
