package io.noroshi.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import okhttp3.Call;
import okhttp3.EventListener;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/** Every vector, over real sockets, against the scripted server. */
class RemoteTest {
    /** A vector waits for sockets most of the time; each has a server for itself. */
    private static final int SERVERS = 8;

    private static final List<Process> PROCESSES = new ArrayList<>();
    private static final BlockingQueue<String> IDLE = new ArrayBlockingQueue<>(SERVERS);
    private static final HttpClient CONTROL = HttpClient.newHttpClient();

    @BeforeAll
    static void start() throws IOException {
        String script = Vectors.sdks().resolve("scripted-server/server.mjs").toString();
        for (int n = 0; n < SERVERS; n++)
            PROCESSES.add(new ProcessBuilder("node", script)
                    .redirectError(ProcessBuilder.Redirect.INHERIT)
                    .start());
        for (Process process : PROCESSES) {
            String address = process.inputReader().readLine();
            IDLE.add(Objects.requireNonNull(
                    address, "the scripted server did not start: npm ci in sdks/scripted-server"));
        }
    }

    @AfterAll
    static void stop() {
        PROCESSES.forEach(Process::destroy);
    }

    @TestFactory
    @Execution(ExecutionMode.CONCURRENT)
    List<DynamicTest> vectors() throws Exception {
        List<DynamicTest> tests = new ArrayList<>();
        for (Vectors.Vector vector : Vectors.all())
            tests.add(DynamicTest.dynamicTest(vector.toString(), () -> {
                String server = IDLE.take();
                try {
                    new Player(server, vector).play();
                } finally {
                    IDLE.add(server);
                }
            }));
        return tests;
    }

    private static final class Player {
        final String server;
        final Vectors.Vector vector;
        final ManualClock clock;
        final NoroshiClient client;
        final OkHttpClient http;
        final ArrayDeque<Fields> tokens;
        /** What the client did, in order, and the results of calls. */
        final List<Object> local = Collections.synchronizedList(new ArrayList<>());
        /** What the listeners got. */
        final Map<String, List<Object>> heard = new ConcurrentHashMap<>();

        final Map<String, CompletableFuture<Void>> deferred = new ConcurrentHashMap<>();
        /**
         * Connections that were begun, and those whose request was written: one that is cancelled before leaves no
         * trace.
         */
        final AtomicInteger begun = new AtomicInteger();

        final AtomicInteger written = new AtomicInteger();
        volatile boolean hasUnread;
        volatile boolean isPending;

        Player(String server, Vectors.Vector vector) {
            this.server = server;
            this.vector = vector;
            clock = new ManualClock(vector.random());
            tokens = new ArrayDeque<>(vector.tokens());
            http = new OkHttpClient.Builder()
                    .eventListenerFactory(call -> new EventListener() {
                        boolean isCounted;

                        private void count() {
                            if (!isCounted) written.incrementAndGet();
                            isCounted = true;
                        }

                        @Override
                        public void requestHeadersEnd(Call call, Request request) {
                            if (request.body() == null) count();
                        }

                        @Override
                        public void requestBodyEnd(Call call, long bytes) {
                            count();
                        }

                        @Override
                        public void callFailed(Call call, IOException cause) {
                            count();
                        }
                    })
                    .socketFactory(new UpgradeWatch(written))
                    .build();
            client = NoroshiClient.builder(server, this::token)
                    .app(vector.options().text("app"))
                    .acknowledge(vector.acknowledge())
                    .pingInterval(Duration.ofSeconds(vector.options().number("ping_interval_s", 60)))
                    .transports(vector.transports().toArray(new Transport[0]))
                    .httpClient(http)
                    .clock(clock)
                    .build();
            client.observer = this::observe;
            if (!vector.listener().equals("none")) client.onMessageAsync(this::message);
            client.onState(state -> hear(new Effect.StateChanged(state)));
            client.onRecovered(recovered -> hear(new Effect.RecoveryEnded(recovered)));
            client.onDenied(denied -> hear(new Effect.SubscriptionDenied(denied)));
            client.onItems(event -> hear(new Effect.ItemsChangedBy(event)));
            client.onError(error -> hear(new Effect.Failed(error)));
        }

        void observe(Effect effect) {
            if (effect instanceof Effect.Dial || effect instanceof Effect.Request) begun.incrementAndGet();
            Map<String, Object> seen = Vectors.local(effect, hasUnread);
            if (seen != null) local.add(seen);
        }

        void hear(Effect effect) {
            Map<String, Object> seen = Objects.requireNonNull(Vectors.local(effect, true));
            heard.computeIfAbsent(
                            seen.keySet().iterator().next(), kind -> Collections.synchronizedList(new ArrayList<>()))
                    .add(seen);
        }

        @Nullable
        String token(TokenRequest request) throws Exception {
            Fields next;
            synchronized (tokens) {
                next = tokens.removeFirst();
                isPending = next.has("pending");
            }
            if (next.has("fail")) throw new IOException("the backend is away");
            if (next.has("none")) return null;
            if (next.has("pending")) Thread.sleep(60_000);
            return Vectors.token(next, clock.nowMs());
        }

        CompletableFuture<Void> message(Message message) {
            hear(new Effect.Pass(message));
            return switch (vector.listener()) {
                case "throws" -> CompletableFuture.failedFuture(new Exception("the listener failed"));
                case "deferred" -> deferred.computeIfAbsent(message.id(), id -> new CompletableFuture<>());
                default -> CompletableFuture.completedFuture(null);
            };
        }

        void play() throws Exception {
            control("reset", Map.of());
            int n = 0;
            try {
                for (Vectors.Step step : vector.steps()) {
                    try {
                        step(step);
                    } catch (AssertionError | RuntimeException cause) {
                        throw new AssertionError("step " + n + ": " + step + "\n" + cause, cause);
                    }
                    n++;
                }
                assertFalse(clock.hasRandom(), "random numbers were not used");
                assertTrue(tokens.isEmpty(), "tokens were not used");
            } finally {
                deferred.values().forEach(one -> one.complete(null));
                client.closeLater();
                waitFor(1_000, () -> client.isIdle(true) && written.get() >= begun.get());
                // Nothing of this vector reaches the next one.
                http.dispatcher().cancelAll();
                waitFor(1_000, () -> http.dispatcher().runningCallsCount() == 0);
                Thread.sleep(20);
            }
        }

        void step(Vectors.Step step) throws Exception {
            switch (step.name()) {
                case "call" -> {
                    for (Map.Entry<String, @Nullable Object> call :
                            step.fields().members.entrySet()) {
                        call(call.getKey(), call.getValue());
                        settle();
                    }
                }
                case "advance" -> {
                    settle();
                    clock.advance(((Number) Objects.requireNonNull(step.argument())).longValue(), this::settle);
                }
                case "expect" -> {
                    Object wire = step.fields().value("wire");
                    Object expected = step.fields().value("local");
                    control("expect", wire instanceof List<?> list ? list : List.of());
                    expect(expected instanceof List<?> list ? list : List.of());
                }
                default -> {
                    long before = client.inputs;
                    control("step", Collections.singletonMap(step.name(), step.argument()));
                    if (!step.name().startsWith("send")) waitFor(1_000, () -> client.inputs != before);
                    settle();
                }
            }
        }

        void expect(List<?> expected) {
            waitFor(2_000, () -> {
                settle();
                return expected.equals(List.copyOf(local));
            });
            assertEquals(expected, List.copyOf(local), "local");
            local.clear();
            for (String kind : List.of("message", "state", "recovered", "denied", "items", "unread", "error")) {
                List<Object> wanted = new ArrayList<>();
                for (Object one : expected) if (((Map<?, ?>) one).containsKey(kind)) wanted.add(one);
                assertEquals(wanted, List.copyOf(heard.getOrDefault(kind, List.of())), "listeners of " + kind);
            }
            heard.clear();
        }

        /** Waits until the client can only wait for the service, the clock or the application. */
        void settle() {
            int[] quiet = new int[1];
            waitFor(5_000, () -> {
                boolean isQuiet = client.isIdle(isPending) && written.get() >= begun.get();
                quiet[0] = isQuiet ? quiet[0] + 1 : 0;
                return quiet[0] >= 3;
            });
            if (quiet[0] < 3) fail("the client does not settle");
        }

        static void waitFor(long ms, BooleanSupplier condition) {
            try {
                for (long end = System.nanoTime() + ms * 1_000_000; !condition.getAsBoolean(); Thread.sleep(1))
                    if (System.nanoTime() > end) return;
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        }

        void control(String path, Object body) throws Exception {
            HttpResponse<String> answer = CONTROL.send(
                    HttpRequest.newBuilder(URI.create(server + "/control/" + path))
                            .version(HttpClient.Version.HTTP_1_1)
                            .POST(HttpRequest.BodyPublishers.ofString(Json.write(body)))
                            .build(),
                    HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() == 409) {
                Fields difference = Fields.parse(answer.body());
                assertEquals(
                        Vectors.byKind((List<?>) Objects.requireNonNull(difference.value("expected"))),
                        Vectors.byKind((List<?>) Objects.requireNonNull(difference.value("observed"))),
                        "wire");
            }
            assertEquals(200, answer.statusCode(), answer.body());
        }

        void call(String name, @Nullable Object argument) {
            Fields fields = Fields.of(argument);
            switch (name) {
                case "connect" -> client.connect();
                case "close" -> client.closeLater();
                case "subscribe" -> {
                    String topic = fields.text("topic", "");
                    if (Boolean.TRUE.equals(fields.flag("recover"))) client.subscribeWithRecovery(topic);
                    else client.subscribe(topic);
                }
                case "unsubscribe" -> client.subscribe(String.valueOf(argument)).unsubscribe();
                case "ack" -> client.ack(texts(argument));
                case "opened" -> client.opened(texts(argument));
                case "presence" -> client.setPresence(Presence.of(String.valueOf(argument)));
                case "page" -> {
                    Boolean hidden = fields.flag("hidden");
                    if (hidden != null) client.setHidden(hidden);
                    if (Boolean.TRUE.equals(fields.flag("online"))) client.networkReturned();
                }
                case "finish", "fail" -> {
                    String id = String.valueOf(argument);
                    waitFor(1_000, () -> deferred.containsKey(id));
                    CompletableFuture<Void> one = Objects.requireNonNull(deferred.remove(id), "not passed on");
                    if (name.equals("fail")) one.completeExceptionally(new Exception("the listener failed"));
                    else one.complete(null);
                }
                case "listen_unread" -> {
                    hasUnread = true;
                    client.onUnread(counts -> hear(new Effect.UnreadChanged(counts)));
                }
                case "me" -> result("me", client.me().thenApply(Me::device));
                case "variant" ->
                    result("variant", client.variant(String.valueOf(argument)).thenApply(found -> found.map(
                                    Variant::variant)
                            .orElse(null)));
                case "mark_read" ->
                    result(
                            "changed",
                            client.inbox().markRead(Which.ids(texts(argument))).thenApply(ItemsChanged::changed));
                default -> fail("not a call: " + name);
            }
        }

        void result(String name, CompletableFuture<?> future) {
            future.whenComplete((value, error) -> {
                Map<String, Object> seen = new LinkedHashMap<>();
                Throwable cause = error != null && error.getCause() != null ? error.getCause() : error;
                if (cause instanceof NoroshiException failure) seen.put("failed", failure.code());
                else seen.put(name, value);
                local.add(seen);
            });
        }

        static List<String> texts(@Nullable Object list) {
            return ((List<?>) Objects.requireNonNull(list))
                    .stream().map(String::valueOf).toList();
        }
    }
}
