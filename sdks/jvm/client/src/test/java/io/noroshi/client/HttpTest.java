package io.noroshi.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.sun.net.httpserver.HttpServer;
import io.noroshi.testing.Node;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What OkHttp does with answers of the service. */
class HttpTest {
    private HttpServer server;

    @BeforeEach
    void start() throws Exception {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.start();
    }

    @AfterEach
    void stop() {
        server.stop(0);
    }

    private AtomicInteger answers(String path, int status, String retryAfter) {
        AtomicInteger count = new AtomicInteger();
        server.createContext(path, exchange -> {
            count.incrementAndGet();
            exchange.getResponseHeaders().set("Retry-After", retryAfter);
            exchange.sendResponseHeaders(status, -1);
            exchange.close();
        });
        return count;
    }

    private NoroshiClient.Builder client() {
        return NoroshiClient.builder("http://127.0.0.1:" + server.getAddress().getPort(), request -> "t1");
    }

    /** B3 */
    @Test
    void aRefusedWebSocketHasAHint() {
        AtomicInteger count = answers("/v1/connect", 503, "7");
        try (NoroshiClient client = client().transports(Transport.WEBSOCKET).build()) {
            client.connect();
            Node.until("the refusal", () -> client.state().status() == State.Status.WAITING);
            assertEquals(Duration.ofSeconds(7), client.state().retryIn());
        }
        assertEquals(1, count.get());
    }

    /** U6 */
    @ParameterizedTest
    @ValueSource(ints = {408, 503})
    void aChangeIsNotRepeated(int status) {
        AtomicInteger count = answers("/v1/me/items", status, "0");
        try (NoroshiClient client = client().build()) {
            CompletionException error = assertThrows(
                    CompletionException.class,
                    () -> client.inbox().markRead(Which.ids("i1")).join());
            assertEquals(
                    status,
                    assertInstanceOf(ProblemException.class, error.getCause()).status());
        }
        assertEquals(1, count.get());
    }

    /** U6 */
    @Test
    void aReadIsRepeatedTwice() {
        AtomicInteger count = answers("/v1/me", 503, "0");
        try (NoroshiClient client = client().build()) {
            assertThrows(CompletionException.class, () -> client.me().join());
        }
        assertEquals(3, count.get());
    }

    /** U6: on a connection that worked before. */
    @Test
    void aChangeIsNotRepeatedAfterABrokenConnection() {
        AtomicInteger count = new AtomicInteger();
        server.createContext("/v1/me", exchange -> {
            exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, 2);
            exchange.getResponseBody().write("{}".getBytes(StandardCharsets.UTF_8));
            exchange.close();
        });
        server.createContext("/v1/me/items", exchange -> {
            count.incrementAndGet();
            throw new IOException("the server breaks the connection");
        });
        try (NoroshiClient client = client().build()) {
            client.me().join();
            assertThrows(
                    CompletionException.class,
                    () -> client.inbox().markRead(Which.ids("i1")).join());
        }
        assertEquals(1, count.get());
    }
}
