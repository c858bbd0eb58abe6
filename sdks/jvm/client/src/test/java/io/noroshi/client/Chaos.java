package io.noroshi.client;

import io.noroshi.testing.Node;
import io.noroshi.testing.Proxy;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Clients of this library against a real node, under faults: kill -9, drain, a stalled and a cut network, revoked
 * devices, replaced connections, tokens of a few seconds. Every message that the node accepted must be shown exactly
 * once, except messages of a topic for which the client reported a gap.
 */
final class Chaos {
    private static final String TOPIC = "chaos";

    private final long seed;
    private final Random random;
    private final Node node = Node.start();
    private final Proxy proxy = new Proxy(node.port);
    private final List<Recorded> devices = new ArrayList<>();
    private final Map<Recorded, List<Long>> expected = new ConcurrentHashMap<>();
    /** Numbers of messages of the topic. */
    private final Set<Long> ofTopic = ConcurrentHashMap.newKeySet();

    private final List<String> log = Collections.synchronizedList(new ArrayList<>());
    private long sent;

    private Chaos(long seed) throws Exception {
        this.seed = seed;
        random = new Random(seed);
    }

    public static void main(String[] arguments) throws Exception {
        double minutes = arguments.length > 0 ? Double.parseDouble(arguments[0]) : 10;
        long seed = arguments.length > 1 ? Long.parseLong(arguments[1]) : System.currentTimeMillis() % 1_000_000;
        Chaos chaos = new Chaos(seed);
        boolean isOk;
        try {
            isOk = chaos.run(minutes);
        } finally {
            chaos.devices.forEach(Recorded::close);
            chaos.node.close();
        }
        System.exit(isOk ? 0 : 1);
    }

    private boolean run(double minutes) throws Exception {
        for (int n = 0; n < 6; n++) {
            boolean isStream = n % 3 == 2;
            Recorded one = new Recorded(proxy.url(), "chaos-" + n, n % 2 == 1 ? 8 : 3_600, builder -> {
                Recorded.pings(1).accept(builder);
                if (isStream) builder.transports(Transport.SSE);
            });
            one.client.onState(state -> log.add(sent + " " + one.device + " " + state));
            one.client.subscribeWithRecovery(TOPIC);
            expected.put(one, Collections.synchronizedList(new ArrayList<>()));
            devices.add(one);
            one.client.connect();
        }
        devices.forEach(Recorded::awaitConnected);
        Node.until("the topic", () -> {
            publish(true, List.of());
            Node.sleep(100);
            return devices.stream().noneMatch(one -> one.shown.isEmpty());
        });
        Node.sleep(500);
        devices.forEach(one -> one.shown.clear());

        long end = System.nanoTime() + (long) (minutes * 60e9);
        boolean[] isOver = new boolean[1];
        Thread publishing = new Thread(
                () -> {
                    Random own = new Random(seed + 1);
                    while (!isOver[0]) {
                        if (own.nextDouble() < 0.3) publish(true, devices);
                        else publish(false, List.of(devices.get(own.nextInt(devices.size()))));
                        Node.sleep(own.nextInt(20));
                    }
                },
                "publisher");
        publishing.start();
        Map<String, Integer> happened = new LinkedHashMap<>();
        List<String> faults = List.of("kill", "drain", "freeze", "cut", "revoke", "replace");
        while (System.nanoTime() < end) {
            String fault = faults.get(random.nextInt(faults.size()));
            log.add(sent + " begin " + fault);
            fault(fault);
            log.add(sent + " end " + fault);
            happened.merge(fault, 1, Integer::sum);
            Node.sleep(random.nextInt(4_000));
        }
        isOver[0] = true;
        publishing.join();
        long deadline = System.nanoTime() + 40_000_000_000L;
        while (System.nanoTime() < deadline
                && devices.stream()
                        .anyMatch(one -> one.shown.size() < expected.get(one).size())) Node.sleep(100);
        Node.sleep(1_000);
        boolean isOk = true;
        for (Recorded one : devices) isOk &= judge(one);
        System.out.printf(
                "%s: seed %d, %d messages, %s minutes, faults: %s%n",
                isOk ? "ok" : "FAILED", seed, sent, minutes, happened);
        return isOk;
    }

    private void fault(String name) throws Exception {
        switch (name) {
            case "kill" -> {
                node.kill();
                node.spawn();
            }
            case "drain" -> {
                node.drain();
                node.spawn();
            }
            case "freeze" -> {
                proxy.freeze();
                Node.sleep(2_000 + random.nextInt(13_000));
                proxy.heal();
            }
            case "cut" -> {
                proxy.cut();
                Node.sleep(random.nextInt(3_000));
                proxy.heal();
            }
            case "revoke" -> node.call("POST", "/v1/devices/" + pick().device + "/revoke", null);
            case "replace" -> replace(pick());
            default -> throw new IllegalArgumentException(name);
        }
    }

    private Recorded pick() {
        return devices.get(random.nextInt(devices.size()));
    }

    private void replace(Recorded victim) {
        if (!victim.client.state().isConnected()) return;
        // A connection of the same device that acknowledges nothing.
        Recorded other =
                new Recorded(node.url(), victim.device, 60, builder -> builder.acknowledge(Acknowledge.MANUAL));
        other.client.connect();
        other.awaitConnected();
        other.close();
        Node.until("the client to be replaced", () -> !victim.client.state().isConnected());
        if (victim.client.state().status() == State.Status.CLOSED) victim.client.connect();
    }

    /**
     * Repeats with the same key until the node has answered: a message whose answer was lost is not published twice.
     */
    private synchronized void publish(boolean toTopic, List<Recorded> receivers) {
        long data = sent++;
        String to = toTopic
                ? "{\"topic\":\"" + TOPIC + "\"}"
                : "{\"users\":[\"" + receivers.get(0).user() + "\"]}";
        if (toTopic) ofTopic.add(data);
        while (true)
            try {
                node.call(
                        "POST",
                        "/v1/notifications",
                        "{\"to\":" + to + ",\"data\":" + data + "}",
                        "Idempotency-Key",
                        "chaos-" + seed + "-" + data);
                break;
            } catch (RuntimeException notYet) {
                Node.sleep(50);
            }
        for (Recorded one : receivers) expected.get(one).add(data);
    }

    private boolean judge(Recorded one) {
        List<Object> shown = List.copyOf(one.shown);
        List<Long> wanted = List.copyOf(expected.get(one));
        List<Long> missing = new ArrayList<>(wanted);
        missing.removeAll(new HashSet<>(shown));
        List<Object> twice = new ArrayList<>(shown);
        new HashSet<>(shown).forEach(twice::remove);
        long gaps = one.recovered.stream()
                .filter(event -> event.completeness() == Recovered.Completeness.INCOMPLETE)
                .count();
        // A change from a WebSocket to a stream has no position of a topic: the client reports a gap (CONTRACT.md X5,
        // X6).
        List<Long> lost = new ArrayList<>(missing);
        if (gaps > 0) lost.removeAll(ofTopic);
        Set<String> codes = new HashSet<>();
        List.copyOf(one.errors).forEach(error -> codes.add(error.code()));
        System.out.printf(
                "%s: %d expected, %d lost, %d twice, %d reported gaps with %d messages, errors: %s%n",
                one.device, wanted.size(), lost.size(), twice.size(), gaps, missing.size() - lost.size(), codes);
        if (!lost.isEmpty() || !twice.isEmpty()) {
            System.out.println("  lost: " + lost + "\n  twice: " + twice);
            List.copyOf(log).stream()
                    .filter(line -> line.contains(one.device) || line.contains("begin") || line.contains(" end "))
                    .forEach(line -> System.out.println("  " + line));
        }
        return lost.isEmpty() && twice.isEmpty();
    }
}
