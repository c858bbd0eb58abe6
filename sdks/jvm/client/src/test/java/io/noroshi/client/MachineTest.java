package io.noroshi.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Every vector, played to a machine without any input or output. */
class MachineTest {
    @TestFactory
    List<DynamicTest> vectors() throws Exception {
        List<DynamicTest> tests = new ArrayList<>();
        for (Vectors.Vector vector : Vectors.all())
            tests.add(DynamicTest.dynamicTest(vector.toString(), () -> new Player(vector).play()));
        assertTrue(tests.size() >= 60);
        return tests;
    }

    private static final class Link {
        final Effect.Dial dial;
        boolean isOpen;
        boolean isOver;

        Link(Effect.Dial dial) {
            this.dial = dial;
        }
    }

    /** The application and the service of a vector. */
    private static final class Player {
        final Vectors.Vector vector;
        final Machine machine;
        long now = Vectors.START_MS;
        final ArrayDeque<Double> random;
        final ArrayDeque<Fields> tokens;
        List<Object> wire = new ArrayList<>();
        List<Object> local = new ArrayList<>();
        final ArrayDeque<Link> dialled = new ArrayDeque<>();
        final Map<Integer, Link> links = new HashMap<>();
        final ArrayDeque<Integer> requests = new ArrayDeque<>();

        @Nullable
        Link current;

        @Nullable
        String passed;

        boolean hasUnread;

        Player(Vectors.Vector vector) {
            this.vector = vector;
            random = new ArrayDeque<>(vector.random());
            tokens = new ArrayDeque<>(vector.tokens());
            machine = new Machine(new Machine.Config(
                    vector.options().text("app"),
                    vector.acknowledge(),
                    vector.options().number("ping_interval_s", 60) * 1_000,
                    vector.transports(),
                    List.of(),
                    false,
                    random::removeFirst));
            machine.listen(now, !vector.listener().equals("none"));
        }

        void play() {
            int n = 0;
            for (Vectors.Step step : vector.steps()) {
                try {
                    step(step);
                    carryOut();
                } catch (AssertionError | RuntimeException cause) {
                    throw new AssertionError("step " + n + ": " + step + "\n" + cause, cause);
                }
                n++;
            }
            assertEquals(List.of(), List.copyOf(random), "random numbers were not used");
            assertTrue(tokens.isEmpty(), "tokens were not used");
        }

        void step(Vectors.Step step) {
            switch (step.name()) {
                case "call" -> step.fields().members.forEach(this::call);
                case "advance" -> advance(((Number) Objects.requireNonNull(step.argument())).longValue());
                case "accept" -> {
                    Link link = dialled.removeFirst();
                    link.isOpen = true;
                    current = link;
                    machine.opened(now, link.dial.attempt());
                }
                case "refuse" -> refuse(step.fields());
                case "send" -> send(step.fields());
                case "send_many" -> {
                    String frame = Json.write(step.fields().value("frame"));
                    for (long i = 1; i <= step.fields().number("count", 0); i++) {
                        frame(frame.replace("#", String.valueOf(i)));
                        carryOut();
                    }
                }
                case "end" -> {
                    Link link = current();
                    link.isOver = true;
                    machine.ended(now, link.dial.attempt(), Machine.End.code((int)
                            step.fields().number("code", 0)));
                }
                case "reply" -> reply(step.fields());
                case "expect" -> {
                    Object expectedWire = step.fields().value("wire");
                    Object expectedLocal = step.fields().value("local");
                    assertEquals(
                            Vectors.byKind(expectedWire instanceof List<?> list ? list : List.of()),
                            Vectors.byKind(wire),
                            "wire");
                    assertEquals(expectedLocal instanceof List<?> list ? list : List.of(), local, "local");
                    wire = new ArrayList<>();
                    local = new ArrayList<>();
                }
                default -> fail("not a step: " + step.name());
            }
        }

        Link current() {
            return Objects.requireNonNull(current);
        }

        void advance(long ms) {
            long end = now + ms;
            for (Long at; (at = machine.nextTimeoutMs()) != null && at <= end; ) {
                now = Math.max(now, at);
                machine.advance(now);
                carryOut();
            }
            now = end;
        }

        void refuse(Fields answer) {
            Link link = dialled.removeFirst();
            link.isOver = true;
            Fields headers = answer.object("headers");
            Fields body = answer.object("body");
            boolean isStream = link.dial.transport() == Transport.SSE;
            machine.ended(
                    now,
                    link.dial.attempt(),
                    new Machine.End(
                            0,
                            isStream ? (int) answer.number("status", 0) : 0,
                            isStream && body != null ? body.text("code") : null,
                            headers == null ? null : Backoff.retryAfterMs(headers.text("retry-after"), now)));
        }

        void send(Fields frame) {
            String raw = frame.text("raw");
            if (current().isOver) return;
            if (raw != null) frame(raw);
            else if (frame.has("binary")) machine.binary(now, current().dial.attempt());
            else frame(Json.write(frame.members));
        }

        void frame(String text) {
            if (!current().isOver) machine.frame(now, current().dial.attempt(), text);
        }

        void reply(Fields answer) {
            int number = requests.removeFirst();
            int status = (int) answer.number("status", 0);
            Fields headers = answer.object("headers");
            machine.answered(
                    now,
                    number,
                    status == 0
                            ? Effect.Response.failed(new NoroshiException("network", "the network broke"))
                            : new Effect.Response(
                                    null,
                                    status,
                                    headers == null ? null : headers.text("etag"),
                                    null,
                                    headers == null ? null : Backoff.retryAfterMs(headers.text("retry-after"), now),
                                    Json.write(answer.value("body"))));
        }

        void call(String name, @Nullable Object argument) {
            Fields fields = Fields.of(argument);
            switch (name) {
                case "connect" -> machine.connect(now);
                case "close" -> machine.close(now);
                case "subscribe" ->
                    machine.subscribe(
                            now, fields.text("topic", ""), Boolean.TRUE.equals(fields.flag("recover")), false);
                case "unsubscribe" -> machine.unsubscribe(now, String.valueOf(argument));
                case "ack" -> machine.ack(now, texts(argument));
                case "opened" -> machine.reportOpened(now, texts(argument));
                case "presence" -> machine.setPresence(now, Presence.of(String.valueOf(argument)));
                case "page" -> {
                    Boolean hidden = fields.flag("hidden");
                    if (hidden != null) machine.setHidden(now, hidden);
                    if (Boolean.TRUE.equals(fields.flag("online"))) machine.networkReturned(now);
                }
                case "finish", "fail" -> {
                    assertEquals(passed, argument);
                    passed = null;
                    machine.settled(now, true, name.equals("fail") ? new Exception("the listener failed") : null);
                }
                case "listen_unread" -> {
                    hasUnread = true;
                    machine.wantUnread(now, true);
                }
                case "me" -> machine.me(now, (me, error) -> saw("me", me == null ? null : me.device(), error));
                case "variant" ->
                    machine.variant(
                            now,
                            String.valueOf(argument),
                            true,
                            (variant, error) -> saw("variant", variant == null ? null : variant.variant(), error));
                case "mark_read" ->
                    machine.changeItems(now, Map.of("action", "read", "ids", texts(argument)), (changed, error) -> {
                        carryOut();
                        saw("changed", changed == null ? null : (Long) changed.changed(), error);
                    });
                default -> fail("not a call: " + name);
            }
        }

        static List<String> texts(@Nullable Object list) {
            return ((List<?>) Objects.requireNonNull(list))
                    .stream().map(String::valueOf).toList();
        }

        void saw(String name, @Nullable Object value, @Nullable NoroshiException error) {
            Map<String, Object> seen = new LinkedHashMap<>();
            if (error != null) seen.put("failed", error.code());
            else seen.put(name, value);
            local.add(seen);
        }

        void carryOut() {
            for (List<Effect> effects; !(effects = machine.effects()).isEmpty(); ) effects.forEach(this::carryOut);
        }

        void carryOut(Effect effect) {
            Map<String, Object> seen = Vectors.local(effect, hasUnread);
            if (seen != null) local.add(seen);
            if (effect instanceof Effect.Dial dial) {
                Link link = new Link(dial);
                links.put(dial.attempt(), link);
                dialled.add(link);
                Map<String, Object> open = new LinkedHashMap<>();
                open.put("open", dial.transport().toString());
                if (dial.app() != null) open.put("app", dial.app());
                if (dial.token() != null) open.put("token", Vectors.tokenName(dial.token()));
                if (!dial.topics().isEmpty()) open.put("topics", String.join(",", dial.topics()));
                if (dial.lastEventId() != null) open.put("last_event_id", dial.lastEventId());
                wire.add(open);
            } else if (effect instanceof Effect.Send send) {
                Link link = links.get(send.attempt());
                assertTrue(link.isOpen && !link.isOver, "sent on a connection that is not open");
                Map<String, Object> frame = parse(send.frame());
                if (frame.get("token") instanceof String token) frame.put("token", Vectors.tokenName(token));
                wire.add(Map.of("frame", frame));
            } else if (effect instanceof Effect.Hangup hangup) {
                Link link = links.get(hangup.attempt());
                if (link.isOver) return;
                link.isOver = true;
                dialled.remove(link);
                Map<String, Object> close = new LinkedHashMap<>();
                close.put("close", link.isOpen && link.dial.transport() == Transport.WEBSOCKET ? (Long) 1000L : null);
                wire.add(close);
            } else if (effect instanceof Effect.AskToken ask) {
                Fields next = tokens.removeFirst();
                if (next.has("fail"))
                    machine.tokenArrived(now, ask.number(), null, false, new Exception("the backend is away"));
                else if (next.has("none")) machine.tokenArrived(now, ask.number(), null, true, null);
                else if (!next.has("pending"))
                    machine.tokenArrived(now, ask.number(), Vectors.token(next, now), false, null);
            } else if (effect instanceof Effect.Request request) {
                requests.add(request.number());
                Map<String, Object> one = new LinkedHashMap<>();
                one.put("method", request.call().method());
                one.put("path", request.call().path());
                one.put("token", Vectors.tokenName(request.token()));
                Map<String, String> query = new LinkedHashMap<>(request.call().query());
                if (vector.options().has("app"))
                    query.put("app", vector.options().text("app"));
                if (!query.isEmpty()) one.put("query", query);
                if (request.call().ifNoneMatch() != null)
                    one.put("if_none_match", request.call().ifNoneMatch());
                if (request.call().body() != null)
                    one.put("body", parse(request.call().body()));
                wire.add(Map.of("request", one));
            } else if (effect instanceof Effect.Pass pass) {
                switch (vector.listener()) {
                    case "deferred" -> passed = pass.message().id();
                    case "throws" -> machine.settled(now, true, new Exception("the listener failed"));
                    default -> machine.settled(now, true, null);
                }
            }
        }

        static Map<String, Object> parse(String text) {
            try {
                return Json.parseObject(text);
            } catch (Json.SyntaxError error) {
                throw new AssertionError(error);
            }
        }
    }
}
