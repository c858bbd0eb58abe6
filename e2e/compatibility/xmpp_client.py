"""The stanzas that Conversations and Dino send at log-in and in use, through slixmpp.

    xmpp_client.py CLIENT PORT ADDRESS PASSWORD [PEER]

CLIENT is `conversations` or `dino`; PEER is the bare address of an account to talk to, which a device has not. Prints a JSON
object: each step with `ok`, what was found, or the condition of the error. Both programs go on after each of the errors.
"""

import asyncio
import json
import sys
from xml.etree import ElementTree

import slixmpp
from slixmpp.exceptions import IqError, IqTimeout

DEADLINE_S = 30
PLUGINS = ["0030", "0045", "0049", "0054", "0060", "0084", "0092", "0115", "0163", "0184", "0191", "0198", "0199", "0203"]
PLUGINS += ["0280", "0313", "0352", "0359"]
# The events that they request (XEP-0163 §4).
NOTIFY = {
    "conversations": ["urn:xmpp:avatar:metadata", "http://jabber.org/protocol/nick", "urn:xmpp:bookmarks:1"],
    "dino": ["urn:xmpp:avatar:metadata", "http://jabber.org/protocol/nick", "storage:bookmarks"],
}
PIXEL = bytes.fromhex("89504e470d0a1a0a")


class Client(slixmpp.ClientXMPP):
    def __init__(self, client: str, port: int, address: str, password: str) -> None:
        super().__init__(f"{address}/{client}.1", password, sasl_mech=None)
        self.client, self.port = client, port
        self.enable_direct_tls = self.enable_starttls = False
        self.enable_plaintext = True
        self.begun, self.managed, self.resumed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        for plugin in PLUGINS:
            config = {"allow_resume": True, "window": 2} if plugin == "0198" else {}
            if plugin == "0115":
                config = {"caps_node": f"https://{client}.example"}
            self.register_plugin(f"xep_{plugin}", config)
        self.plugin["feature_mechanisms"].unencrypted_plain = True
        self.plugin["feature_mechanisms"].unencrypted_scram = True
        for node in NOTIFY[client]:
            self.plugin["xep_0030"].add_feature(f"{node}+notify")
        self.add_event_handler("session_start", lambda _: self.begun.set())
        self.add_event_handler("session_resumed", lambda _: self.resumed.set())
        self.add_event_handler("sm_enabled", lambda _: self.managed.set())
        self.messages: asyncio.Queue = asyncio.Queue()
        self.add_event_handler("message", self.messages.put_nowait)


async def outcome(step) -> object:
    try:
        found = await asyncio.wait_for(step, DEADLINE_S)
    except IqError as error:
        return error.condition
    except (IqTimeout, asyncio.TimeoutError):
        return "no answer"
    return "ok" if found is None or not isinstance(found, str) else found


async def play(client: str, port: int, address: str, password: str, peer: str | None) -> dict:
    xmpp = Client(client, port, address, password)
    xmpp.connect("127.0.0.1", port)
    await asyncio.wait_for(xmpp.begun.wait(), DEADLINE_S)
    own, domain = xmpp.boundjid.bare, xmpp.boundjid.domain
    done = {"log-in": "ok"}

    async def step(name: str, what) -> None:
        done[name] = await outcome(what)

    def stanza(kind: str, to: str | None, inside: str) -> asyncio.Future:
        iq = xmpp.make_iq(itype=kind, ito=to)
        iq.append(ElementTree.fromstring(inside))
        return iq.send(timeout=DEADLINE_S)

    async def features(of: str, node: str | None = None) -> set:
        info = await xmpp.plugin["xep_0030"].get_info(of, node=node)
        return set(info["disco_info"]["features"])

    async def caps() -> str:
        known = await features(domain)
        return "ok" if "http://jabber.org/protocol/caps" in known else "missing"

    async def roster() -> str:
        result = await xmpp.get_roster()
        version = result["roster"]["ver"]
        again = await stanza("get", None, f"<query xmlns='jabber:iq:roster' ver='{version}'/>")
        return "ok" if version and not list(again.xml) else "sent again"

    async def archive() -> str:
        form = "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'><value>urn:xmpp:mam:2</value></field></x>"
        page = "<set xmlns='http://jabber.org/protocol/rsm'><max>30</max><before/></set>"
        found = await stanza("set", None, f"<query xmlns='urn:xmpp:mam:2' queryid='q'>{form}{page}</query>")
        return "ok" if found.xml.find("{urn:xmpp:mam:2}fin") is not None else "no end"

    async def upload() -> str:
        items = await xmpp.plugin["xep_0030"].get_items(domain)
        places = [domain, *(jid for jid, _, _ in items["disco_items"]["items"])]
        found = [place for place in places if "urn:xmpp:http:upload:0" in await features(place)]
        return "found" if found else "absent"

    async def push() -> str:
        return await stanza("set", None, "<enable xmlns='urn:xmpp:push:0' jid='push.example.com' node='n'/>")

    async def bookmark(model: str) -> None:
        field = "<field var='{}'><value>{}</value></field>"
        fields = field.format("FORM_TYPE", "http://jabber.org/protocol/pubsub#publish-options")
        for name, value in [("persist_items", "true"), ("access_model", model), ("max_items", "max")]:
            fields += field.format(f"pubsub#{name}", value)
        form = f"<publish-options><x xmlns='jabber:x:data' type='submit'>{fields}</x></publish-options>"
        item = "<item id='room@rooms.example'><conference xmlns='urn:xmpp:bookmarks:1'/></item>"
        publish = f"<publish node='urn:xmpp:bookmarks:1'>{item}</publish>"
        await stanza("set", None, f"<pubsub xmlns='http://jabber.org/protocol/pubsub'>{publish}{form}</pubsub>")

    async def resume() -> str:
        management = xmpp.plugin["xep_0198"]
        if not management.sm_id:
            return "not offered"
        xmpp.transport.abort()
        # slixmpp does not reconnect unless configured to.
        await asyncio.sleep(0)
        xmpp.connect("127.0.0.1", port)
        await xmpp.resumed.wait()
        return "ok"

    async def talk() -> str:
        other = Client("dino" if client == "conversations" else "conversations", port, peer, password)
        other.connect("127.0.0.1", port)
        await asyncio.wait_for(other.begun.wait(), DEADLINE_S)
        other.send_presence()
        await other.plugin["xep_0199"].ping(domain)
        xmpp.send_message(mto=peer, mbody="hello", mtype="chat")
        inbound = await asyncio.wait_for(other.messages.get(), DEADLINE_S)
        await other.disconnect()
        return "ok" if inbound["body"] == "hello" else "something else"

    # At log-in, in the order of both programs.
    await step("stream management", xmpp.managed.wait())
    await step("discovery and capabilities", caps())
    await step("roster with a version", roster())
    await step("carbons", xmpp.plugin["xep_0280"].enable(timeout=DEADLINE_S))
    xmpp.send_presence()
    await step("archive", archive())
    await step("blocking", xmpp.plugin["xep_0191"].get_blocked())
    if client == "conversations":
        await step("push to the app's server", push())
        await step("bookmarks in PEP, closed", bookmark("whitelist"))
    else:
        await step("bookmarks in private storage", stanza("get", None, "<query xmlns='jabber:iq:private'/>"))
    await step("file upload", upload())
    await step("own card", xmpp.plugin["xep_0054"].get_vcard(local=False, timeout=DEADLINE_S))
    # In use.
    await step("avatar", xmpp.plugin["xep_0084"].publish_avatar(PIXEL))
    await step("ping", xmpp.plugin["xep_0199"].ping(domain))
    await step("own ping", xmpp.plugin["xep_0199"].ping(own))
    await step("software version", xmpp.plugin["xep_0092"].get_version(domain, timeout=DEADLINE_S))
    xmpp.plugin["xep_0352"].send_inactive()
    xmpp.plugin["xep_0352"].send_active()
    if peer:
        await step("message", talk())
    await step("resumption", resume())
    await step("ping afterwards", xmpp.plugin["xep_0199"].ping(domain))
    await xmpp.disconnect()
    return done


if __name__ == "__main__":
    arguments = sys.argv[1:] + [None] * (5 - len(sys.argv[1:]))
    print(json.dumps(asyncio.run(play(arguments[0], int(arguments[1]), *arguments[2:5]))))
