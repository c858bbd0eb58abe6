package io.noroshi.server;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.noroshi.server.types.AppChange;
import io.noroshi.server.types.Device;
import io.noroshi.server.types.DeviceRegistration;
import io.noroshi.server.types.ItemState;
import io.noroshi.server.types.Notification;
import io.noroshi.server.types.ProblemCode;
import io.noroshi.server.types.Receipt;
import io.noroshi.server.types.Recipient;
import io.noroshi.server.types.Shown;
import io.noroshi.server.types.To;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Requests, retries, paging and batches, against a service of this process. */
class HttpTest {
    private static final Notification HELLO = Notification.builder()
            .to(To.users("u1"))
            .notification(Shown.builder().title("Hello").build())
            .build();
    private static final String RECEIPT = "{\"id\":\"n1\",\"targets\":1,\"later\":true}";

    private record Seen(String method, String path, Map<String, List<String>> headers, String body) {
        @Nullable
        String header(String name) {
            List<String> values = headers.get(name);
            return values == null ? null : values.get(0);
        }
    }

    private record Answer(int status, Map<String, String> headers, String body) {
        static Answer ok(String body) {
            return new Answer(200, Map.of(), body);
        }

        static Answer problem(int status, String code) {
            return new Answer(
                    status,
                    Map.of("X-Request-Id", "r-" + code),
                    "{\"type\":\"/docs\",\"title\":\"A title\",\"status\":" + status + ",\"code\":\"" + code
                            + "\",\"detail\":\"The detail\",\"field\":\"to\"}");
        }
    }

    /** The clock does not wait, and notes for how long it should. */
    private static final class NoWait implements Clock {
        final List<Duration> waits = new ArrayList<>();
        double random = 0.5;

        @Override
        public Instant now() {
            return Instant.parse("2026-01-01T00:00:00Z");
        }

        @Override
        public long nanoTime() {
            return System.nanoTime();
        }

        @Override
        public Runnable schedule(Duration delay, Runnable task) {
            // Timeouts are at least a second here, waits between attempts are compared.
            if (delay.compareTo(Duration.ofSeconds(25)) >= 0) return Clock.SYSTEM.schedule(delay, task);
            waits.add(delay);
            return Clock.SYSTEM.schedule(Duration.ZERO, task);
        }

        @Override
        public double random() {
            return random;
        }
    }

    private HttpServer server;
    private final List<Seen> seen = new ArrayList<>();
    private final ArrayDeque<Answer> answers = new ArrayDeque<>();
    private final NoWait clock = new NoWait();
    private Noroshi noroshi;

    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", this::handle);
        server.start();
        noroshi = builder().build();
    }

    @AfterEach
    void stop() {
        server.stop(0);
    }

    private Noroshi.Builder builder() {
        return Noroshi.builder("http://127.0.0.1:" + server.getAddress().getPort() + "/base/", "secret-key")
                .clock(clock);
    }

    private void handle(HttpExchange exchange) throws IOException {
        String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
        Answer answer;
        synchronized (seen) {
            seen.add(new Seen(
                    exchange.getRequestMethod(),
                    exchange.getRequestURI().toString(),
                    exchange.getRequestHeaders(),
                    body));
            answer = answers.poll();
        }
        if (answer == null || answer.status == 0) {
            exchange.close();
            return;
        }
        answer.headers.forEach(exchange.getResponseHeaders()::set);
        byte[] bytes = answer.body.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(answer.status, answer.status == 204 ? -1 : bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    @Test
    void publishes() {
        answers.add(Answer.ok(RECEIPT));
        Receipt receipt = noroshi.publish(HELLO);
        assertEquals("n1", receipt.id());
        Seen request = seen.get(0);
        assertEquals("POST /base/v1/notifications", request.method + " " + request.path);
        assertEquals("{\"to\":{\"users\":[\"u1\"]},\"notification\":{\"title\":\"Hello\"}}", request.body);
        assertEquals("Bearer secret-key", request.header("Authorization"));
        assertEquals("application/json", request.header("Content-type"));
    }

    @Test
    void rejectsAKeyThatIsNoHeaderWithoutNamingIt() {
        Noroshi broken = Noroshi.builder("http://127.0.0.1:1", "secret\n").build();
        IllegalArgumentException error = assertThrows(IllegalArgumentException.class, () -> broken.publish(HELLO));
        assertEquals("the API key must be visible ASCII characters", error.getMessage());
        assertThrows(IllegalArgumentException.class, () -> Noroshi.builder("push.example.com", "k"));
    }

    @Test
    void repeatsWithTheSameIdempotencyKeyAndFullJitter() {
        answers.add(Answer.problem(500, "internal"));
        answers.add(Answer.problem(503, "overloaded"));
        answers.add(Answer.ok(RECEIPT));
        noroshi.publish(HELLO);
        assertEquals(3, seen.size());
        assertEquals(
                1,
                new HashSet<>(seen.stream()
                                .map(one -> one.header("Idempotency-key"))
                                .toList())
                        .size());
        assertEquals(List.of(Duration.ofMillis(125), Duration.ofMillis(250)), clock.waits);
        answers.add(Answer.ok(RECEIPT));
        noroshi.publish(HELLO);
        assertNotEquals(seen.get(0).header("Idempotency-key"), seen.get(3).header("Idempotency-key"));
    }

    @Test
    void waitsForRetryAfterInSecondsOrAsADate() {
        answers.add(new Answer(429, Map.of("Retry-After", "3"), "{}"));
        answers.add(new Answer(503, Map.of("Retry-After", "Thu, 01 Jan 2026 00:00:10 GMT"), "<html>"));
        answers.add(Answer.ok(RECEIPT));
        noroshi.publish(HELLO);
        assertEquals(List.of(Duration.ofMillis(3_125), Duration.ofMillis(10_250)), clock.waits);
    }

    @Test
    void repeatsAfterALostConnection() {
        answers.add(new Answer(0, Map.of(), ""));
        answers.add(Answer.ok(RECEIPT));
        assertEquals("n1", noroshi.publish(HELLO).id());
    }

    @Test
    void repeatsNothingThatCannotSucceed() {
        for (int status : List.of(400, 401, 403, 404, 409, 413, 422, 501)) {
            answers.add(Answer.problem(status, ProblemCode.INVALID_FIELD));
            ProblemException error = assertThrows(ProblemException.class, () -> noroshi.publish(HELLO));
            assertEquals(status, error.status());
            assertEquals(1, error.attempts());
        }
        assertEquals(8, seen.size());
    }

    @Test
    void readsTheProblem() {
        answers.add(Answer.problem(400, ProblemCode.INVALID_FIELD));
        ProblemException error = assertThrows(ProblemException.class, () -> noroshi.publish(HELLO));
        assertEquals(ProblemCode.INVALID_FIELD, error.code());
        assertEquals("The detail", error.getMessage());
        assertEquals("A title", error.title());
        assertEquals("to", error.field());
        assertEquals("r-invalid_field", error.requestId());
        assertTrue(List.of(error.getSuppressed()[0].getStackTrace()).stream()
                .anyMatch(frame -> frame.getClassName().equals(HttpTest.class.getName())));
        answers.add(new Answer(502, Map.of("Retry-After", "700"), "<html>a proxy</html>"));
        ProblemException page = assertThrows(ProblemException.class, () -> noroshi.publish(HELLO));
        assertEquals("http_502", page.code());
        assertEquals(Duration.ofSeconds(700), page.retryAfter());
    }

    @Test
    void stopsAfterTheAttemptsAndBeforeTheDeadline() {
        for (int n = 0; n < 10; n++) answers.add(Answer.problem(503, "overloaded"));
        NoroshiException error = assertThrows(NoroshiException.class, () -> noroshi.publish(HELLO));
        assertEquals(5, error.attempts());
        assertEquals(5, seen.size());
        assertThrows(
                NoroshiException.class,
                () -> noroshi.with(RequestOptions.builder().attempts(1).build()).publish(HELLO));
        assertEquals(6, seen.size());
        answers.clear();
        answers.add(new Answer(503, Map.of("Retry-After", "40"), "{}"));
        assertThrows(NoroshiException.class, () -> noroshi.with(RequestOptions.builder()
                        .deadline(Duration.ofSeconds(30))
                        .build())
                .publish(HELLO));
        assertEquals(7, seen.size());
    }

    @Test
    void repeatsAnUnsafeRequestOnlyIfTheServiceHasNotDoneIt() {
        answers.add(Answer.problem(503, "overloaded"));
        answers.add(Answer.ok("{\"id\":\"c1\",\"state\":\"paused\"}"));
        assertEquals("c1", noroshi.campaigns().pause("c1").id());
        answers.add(Answer.problem(500, "internal"));
        assertThrows(ProblemException.class, () -> noroshi.campaigns().pause("c1"));
        answers.add(Answer.problem(503, "cell_unavailable"));
        assertThrows(ProblemException.class, () -> noroshi.campaigns().pause("c1"));
        assertEquals(4, seen.size());
    }

    @Test
    void aDeletionWhoseAnswerWasLostSucceeds() {
        answers.add(Answer.problem(500, "internal"));
        answers.add(Answer.problem(404, "not_found"));
        noroshi.devices().delete("d/1 ü");
        assertEquals("/base/v1/devices/d%2F1%20%C3%BC", seen.get(0).path);
        answers.add(Answer.problem(404, "not_found"));
        assertThrows(ProblemException.class, () -> noroshi.devices().delete("d1"));
        assertThrows(IllegalArgumentException.class, () -> noroshi.devices().delete(".."));
    }

    @Test
    void anAttemptHasATimeout() throws Exception {
        CountDownLatch block = new CountDownLatch(1);
        server.removeContext("/");
        server.createContext("/", exchange -> {
            try {
                block.await(10, TimeUnit.SECONDS);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
            exchange.close();
        });
        NoroshiException error = assertThrows(NoroshiException.class, () -> builder()
                .clock(Clock.SYSTEM)
                .timeout(Duration.ofMillis(100))
                .attempts(2)
                .build()
                .publish(HELLO));
        assertEquals("timeout", error.code());
        assertEquals(2, error.attempts());
        CompletableFuture<Receipt> cancelled =
                builder().clock(Clock.SYSTEM).build().publishAsync(HELLO);
        cancelled.cancel(true);
        assertTrue(cancelled.isCancelled());
        Thread.currentThread().interrupt();
        assertEquals(
                "interrupted",
                assertThrows(
                                NoroshiException.class,
                                () -> builder().clock(Clock.SYSTEM).build().publish(HELLO))
                        .code());
        assertTrue(Thread.interrupted());
        block.countDown();
    }

    @Test
    void sendsTheTraceAndReportsAttempts() {
        List<Attempt> attempts = new ArrayList<>();
        Noroshi traced = builder()
                .trace(() -> new TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a=b"))
                .onAttempt(attempts::add)
                .build();
        answers.add(Answer.problem(500, "internal"));
        answers.add(Answer.ok(RECEIPT));
        traced.publish(HELLO);
        assertEquals(
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                seen.get(0).header("Traceparent"));
        assertEquals("a=b", seen.get(0).header("Tracestate"));
        assertEquals(List.of(1, 2), attempts.stream().map(Attempt::attempt).toList());
        assertEquals(500, attempts.get(0).status());
        assertEquals(Duration.ofMillis(125), attempts.get(0).retryIn());
        assertNull(attempts.get(1).error());
        answers.add(Answer.ok(RECEIPT));
        traced.with(RequestOptions.builder()
                        .trace(new TraceContext("not a trace", null))
                        .requestId("my-request")
                        .idempotencyKey("order-7")
                        .build())
                .publish(HELLO);
        assertNull(seen.get(2).header("Traceparent"));
        assertEquals("my-request", seen.get(2).header("X-request-id"));
        assertEquals("order-7", seen.get(2).header("Idempotency-key"));
    }

    @Test
    void readsPagesWhenTheyAreNeeded() {
        answers.add(Answer.ok("{\"devices\":[{\"device\":\"d1\"},{\"device\":\"d2\"}],\"next\":\"a b\"}"));
        answers.add(Answer.ok("{\"devices\":[],\"next\":\"c\"}"));
        answers.add(Answer.ok("{\"devices\":[{\"device\":\"d3\"}],\"next\":null}"));
        List<String> found = new ArrayList<>();
        for (Device device : noroshi.devices().list()) {
            if (found.isEmpty()) assertEquals(1, seen.size());
            found.add(device.device());
        }
        assertEquals(List.of("d1", "d2", "d3"), found);
        assertEquals(
                List.of("/base/v1/devices", "/base/v1/devices?after=a%20b", "/base/v1/devices?after=c"),
                seen.stream().map(Seen::path).toList());
        answers.add(Answer.ok("{\"devices\":[{\"device\":\"d1\"}],\"next\":\"x\"}"));
        assertEquals(1, noroshi.devices().list().stream().limit(1).count());
        assertEquals(4, seen.size());
    }

    @Test
    void aBatchHasAResultForEachLineAndRepeatsThoseThatAreRejectedForNow() {
        String error =
                "{\"error\":{\"type\":\"/docs\",\"title\":\"t\",\"status\":%d,\"code\":\"%s\",\"detail\":\"d\"}}\n";
        answers.add(Answer.ok("{\"id\":\"n1\",\"targets\":1}\n" + error.formatted(503, "overloaded")));
        answers.add(Answer.ok("{\"id\":\"n1\",\"targets\":1}\n{\"id\":\"n2\",\"targets\":2}\n"));
        answers.add(Answer.ok(error.formatted(400, "invalid_field")));
        Notification broken =
                Notification.builder().to(To.everyone()).data(new Object()).build();
        List<LineResult<Notification, Receipt>> results = noroshi
                .with(RequestOptions.idempotent("batch"))
                .publishBatch(List.of(HELLO, broken, HELLO, HELLO))
                .linesPerRequest(3)
                .stream()
                .toList();
        assertEquals(
                List.of(true, false, true, false),
                results.stream().map(LineResult::isOk).toList());
        assertEquals(
                "invalid_line", Objects.requireNonNull(results.get(1).error()).code());
        assertEquals("n2", Objects.requireNonNull(results.get(2).value()).id());
        assertEquals(
                "invalid_field", Objects.requireNonNull(results.get(3).error()).code());
        assertEquals(
                List.of("batch-0", "batch-0", "batch-1"),
                seen.stream().map(one -> one.header("Idempotency-key")).toList());
        assertEquals("application/x-ndjson", seen.get(0).header("Content-type"));
        assertEquals(2, seen.get(0).body.lines().count());
        assertEquals(1, clock.waits.size());
    }

    @Test
    void aBatchIsBoundedAndLazy() {
        for (int n = 0; n < 3; n++) answers.add(Answer.ok("{\"user\":\"u\"}\n"));
        List<Integer> taken = new ArrayList<>();
        Iterable<Recipient> lines = () -> List.of(1, 2, 3).stream()
                .map(n -> {
                    taken.add(n);
                    return Recipient.builder().user("u" + n).build();
                })
                .iterator();
        var results = noroshi.uploadRecipients("c1", lines).bytesPerRequest(1).iterator();
        results.next();
        assertEquals(1, seen.size());
        assertTrue(taken.size() <= 2);
        results.next();
        results.next();
        assertEquals(3, seen.size());
        answers.add(Answer.ok("{\"device\":\"d\",\"token\":\"t\"}\n{\"device\":\"e\",\"token\":\"t\"}\n"));
        List<String> devices = new ArrayList<>();
        var registrations = List.of(
                DeviceRegistration.builder().user("u1").build(),
                DeviceRegistration.builder().user("u2").build());
        assertEquals(
                2,
                noroshi.registerDevices(registrations)
                        .sendAsync(result -> devices.add(
                                Objects.requireNonNull(result.value()).device()))
                        .join());
        assertEquals(List.of("d", "e"), devices);
    }

    @Test
    void aChangeClearsFieldsAndOmitsOthers() {
        answers.add(Answer.ok("{\"name\":\"shop\",\"client_publish\":[]}"));
        noroshi.app("shop")
                .change(AppChange.builder().issuer("i").clearJwksUrl().build());
        assertEquals("{\"jwks_url\":null,\"issuer\":\"i\"}", seen.get(0).body);
    }

    @Test
    void acceptsWhatLaterVersionsAdd() {
        answers.add(
                Answer.ok(
                        "{\"items\":[{\"id\":\"i\",\"state\":\"snoozed\",\"new\":1,\"created_at\":\"2026-01-01T00:00:00Z\"}],\"next\":null}"));
        assertEquals(
                ItemState.UNRECOGNIZED,
                noroshi.users().items("u1").iterator().next().state());
        answers.add(Answer.ok("[]"));
        assertEquals(
                "bad_answer",
                assertThrows(NoroshiException.class, () -> noroshi.topics().get("t"))
                        .code());
    }
}
