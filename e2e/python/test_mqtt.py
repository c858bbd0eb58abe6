"""MQTT with paho-mqtt, 3.1.1 and 5, over TCP and WebSocket."""

import json
import queue

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from node import DEADLINE_S, Node, free_port


@pytest.fixture(scope="module")
def mqtt_node():
    port = free_port()
    node = Node("--mqtt", f"127.0.0.1:{port}", "--conformance")
    node.mqtt_port = port
    yield node
    node.stop()


class Client:
    """A connected client with a queue of its events."""

    def __init__(self, node, device=None, version=paho.MQTTv5, transport="tcp", client_id="paho", lasting=False):
        clean = {} if version == paho.MQTTv5 else {"clean_session": not lasting}
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=version, transport=transport, **clean)
        if transport == "websockets":
            self.paho.ws_set_options(path="/mqtt")
        if device:
            self.paho.username_pw_set(device["device"], device["token"])
        self.received, self.events = queue.Queue(), queue.Queue()
        self.paho.on_message = lambda _c, _u, message: self.received.put(message)
        self.paho.on_connect = lambda _c, _u, flags, reason, _p: self.events.put((str(reason), flags.session_present))
        self.paho.on_subscribe = lambda _c, _u, _m, reasons, _p: self.events.put([reason.value for reason in reasons])
        self.paho.on_disconnect = lambda _c, _u, _f, reason, _p: self.events.put(("end", reason.value))
        port = node.mqtt_port if transport == "tcp" else node.http_port
        options = {}
        if version == paho.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 600 if lasting else 0
            options = {"clean_start": not lasting, "properties": properties}
        self.paho.connect("127.0.0.1", port, **options)
        self.paho.loop_start()
        self.connack = self.next()

    def next(self):
        return self.events.get(timeout=DEADLINE_S)

    def message(self):
        return self.received.get(timeout=DEADLINE_S)

    def leave(self):
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
@pytest.mark.parametrize("transport", ["tcp", "websockets"])
def test_inbox_topics_and_publishing(mqtt_node, version, transport):
    node = mqtt_node
    device = node.register(user=f"{transport}{version}")
    client = Client(node, device, version, transport)
    assert client.connack == ("Success", False)
    client.paho.subscribe([("$noroshi/inbox", 1), (f"sport/{transport}/+", 2)])
    assert client.next() == [1, 2]
    sent = node.publish(to={"users": [f"{transport}{version}"]}, notification={"title": "狼煙"})
    message = client.message()
    assert (message.topic, json.loads(message.payload)["id"]) == ("$noroshi/inbox", sent["id"])
    node.outcome(sent["id"], device["device"], "acked")
    for qos in (0, 1, 2):
        client.paho.publish(f"sport/{transport}/x", f"{qos}", qos).wait_for_publish(DEADLINE_S)
        message = client.message()
        assert (message.payload.decode(), message.qos) == (f"{qos}", qos)
    client.leave()


def test_a_session_resumes_and_keeps_its_retain_handling(mqtt_node):
    node = mqtt_node
    device = node.register()
    publisher = Client(node, client_id="publisher")
    publisher.paho.publish("state/door", "open", 1, retain=True).wait_for_publish(DEADLINE_S)
    client = Client(node, device, lasting=True)
    assert client.connack == ("Success", False)
    client.paho.subscribe("state/door", options=SubscribeOptions(qos=1, retainHandling=2))
    assert client.next() == [1]
    client.paho.subscribe("state/#", options=SubscribeOptions(qos=1, retainHandling=1))
    assert client.next() == [1]
    assert (client.message().payload, client.received.qsize()) == (b"open", 0)
    client.paho.subscribe("state/#", options=SubscribeOptions(qos=1, retainHandling=1))
    assert client.next() == [1]
    client.leave()
    for n in range(50):
        publisher.paho.publish("state/door", str(n), 1).wait_for_publish(DEADLINE_S)
    client = Client(node, device, lasting=True)
    assert client.connack == ("Success", True)
    assert [client.message().payload.decode() for _ in range(50)] == [str(n) for n in range(50)]
    client.leave()
    publisher.leave()


def test_expectations_of_the_conformance_suites(mqtt_node):
    client = Client(mqtt_node, client_id="nobody-in-particular")
    client.paho.subscribe("test/nosubscribe", 0)
    assert client.next()[0] >= 0x80
    client.paho.subscribe("$share/group/x", 0)
    assert client.next() == [0x00]
    second = Client(mqtt_node, client_id="nobody-in-particular")
    assert client.next() == ("end", 0x8E)
    client.paho.loop_stop()
    second.leave()
