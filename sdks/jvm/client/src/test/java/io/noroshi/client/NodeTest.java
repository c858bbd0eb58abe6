package io.noroshi.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.noroshi.testing.Node;
import io.noroshi.testing.Proxy;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.stream.LongStream;
import okhttp3.OkHttpClient;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/** The client against a real node: kill -9, drain, replaced, revoked, expired tokens, a stalled network. */
@Execution(ExecutionMode.CONCURRENT)
class NodeTest {
    private static Node node;

    @BeforeAll
    static void start() throws IOException {
        node = Node.start();
    }

    @AfterAll
    static void stop() {
        node.close();
    }

    private static String publish(Node node, String to, Object data) {
        try {
            return Fields.parse(node.call(
                            "POST", "/v1/notifications", "{\"to\":" + to + ",\"data\":" + Json.write(data) + "}"))
                    .text("id", "");
        } catch (Json.SyntaxError error) {
            throw new AssertionError(error);
        }
    }

    private static void send(Node node, Recorded one, Object data) {
        publish(node, "{\"users\":[\"" + one.user() + "\"]}", data);
    }

    private static List<Object> numbers(long count) {
        return LongStream.range(0, count).boxed().map(n -> (Object) n).toList();
    }

    @Test
    void killMinusNineLosesAndRepeatsNothing() throws Exception {
        try (Node own = Node.start();
                Recorded one = new Recorded(
                        own.url(),
                        "killed",
                        3_600,
                        // A stream, after two attempts during the restart, has no position: the client would report a
                        // gap (X5).
                        builder -> builder.transports(Transport.WEBSOCKET))) {
            Subscription log = one.client.subscribeWithRecovery("log");
            List<Object> topic = Collections.synchronizedList(new ArrayList<>());
            log.onMessage(message -> topic.add(message.data()));
            one.client.connect();
            one.awaitConnected();
            Node.until("the subscription", () -> own.call("GET", "/v1/topics/log", null)
                    .contains("\"connected\":1"));
            publish(own, "{\"topic\":\"log\"}", 0);
            send(own, one, "inbox 0");
            one.awaitShown(2);
            own.kill();
            Node.until("the loss to be noticed", () -> !one.client.state().isConnected());
            own.spawn();
            for (int n = 1; n < 20; n++) {
                publish(own, "{\"topic\":\"log\"}", n);
                send(own, one, "inbox " + n);
            }
            one.awaitConnected();
            one.awaitShown(40);
            publish(own, "{\"topic\":\"log\"}", 20);
            one.awaitShown(41);
            assertEquals(41, one.shown.size());
            assertEquals(numbers(21), topic);
            assertEquals(List.of(new Recovered("log", Recovered.Completeness.COMPLETE)), one.recovered);
        }
    }

    @Test
    void aDrainMovesTheClient() throws Exception {
        try (Node own = Node.start();
                Recorded one = Recorded.connected(own.url(), "drained")) {
            for (long n = 0; n < 10; n++) send(own, one, n);
            one.awaitShown(1);
            own.drain();
            own.spawn();
            for (long n = 10; n < 20; n++) send(own, one, n);
            one.awaitShown(20);
            send(own, one, 20L);
            one.awaitShown(21);
            assertEquals(numbers(21), one.shown);
            assertTrue(one.hadReason("drain"), one.states.toString());
        }
    }

    @Test
    void aNewerConnectionReplacesTheClient() {
        try (Recorded one = Recorded.connected(node.url(), "replaced");
                Recorded two = Recorded.connected(node.url(), "replaced")) {
            Node.until("the first one to be closed", () -> one.client.state().status() == State.Status.CLOSED);
            assertEquals("replaced", one.client.state().reason());
            send(node, two, "here");
            two.awaitShown(1);
            assertEquals(List.of(), one.shown);
        }
    }

    @Test
    void aRevokedDeviceGetsAnotherToken() {
        try (Recorded one = Recorded.connected(node.url(), "revoked")) {
            Node.sleep(1_100); // a JWT of the second of the revocation stays rejected
            node.call("POST", "/v1/devices/revoked/revoke", null);
            Node.until("another token", () -> one.asked.contains(TokenRequest.Reason.REJECTED));
            one.awaitConnected();
            send(node, one, "again");
            one.awaitShown(1);
            assertTrue(one.hadReason("revoked") || one.hadReason("unauthorized"), one.states.toString());
        }
    }

    @Test
    void aTokenIsRenewedOnTheOpenConnection() {
        try (Recorded one = new Recorded(node.url(), "renewed", 8, builder -> {})) {
            one.client.connect();
            one.awaitConnected();
            Node.until("a renewal", () -> one.asked.contains(TokenRequest.Reason.EXPIRING));
            Node.sleep(1_500);
            send(node, one, "same session");
            one.awaitShown(1);
            assertEquals(2, one.states.size(), one.states.toString());
            assertEquals(List.of(), one.errors);
        }
    }

    @Test
    void aTokenThatIsNoHeaderIsReported() {
        int[] count = new int[1];
        try (Recorded one = new Recorded(node.url(), "padded", builder -> {}, request -> {
            return Node.jwt("padded", 60) + (count[0]++ == 0 ? "\n" : "");
        })) {
            one.client.connect();
            one.awaitConnected();
            assertEquals(
                    List.of("token_failed"),
                    one.errors.stream().map(NoroshiException::code).toList());
        }
    }

    @Test
    void anExpiredTokenIsReplaced() {
        int[] count = new int[1];
        try (Recorded one = new Recorded(node.url(), "expired", builder -> {}, request -> {
            if (request.reason() == TokenRequest.Reason.EXPIRING) throw new IOException("away");
            return Node.jwt("expired", count[0]++ == 0 ? 2 : 600);
        })) {
            one.client.connect();
            Node.until("the expiry", () -> one.hadReason("expired"));
            one.awaitConnected();
            send(node, one, "with the new token");
            one.awaitShown(1);
            assertTrue(one.errors.stream().allMatch(error -> error.code().equals("token_failed")));
        }
    }

    @Test
    void aStalledNetworkIsNoticed() throws Exception {
        try (Proxy proxy = new Proxy(node.port);
                Recorded one = new Recorded(proxy.url(), "stalled", 3_600, Recorded.pings(1))) {
            one.client.connect();
            one.awaitConnected();
            send(node, one, 0L);
            one.awaitShown(1);
            proxy.freeze();
            send(node, one, 1L);
            Node.until("the loss to be noticed", () -> one.hadReason("connection_lost"));
            proxy.heal();
            send(node, one, 2L);
            one.awaitShown(3);
            assertEquals(numbers(3), one.shown);
        }
    }

    @Test
    void serverSentEvents() throws Exception {
        try (Node own = Node.start();
                Recorded one =
                        new Recorded(own.url(), "streamed", 3_600, builder -> builder.transports(Transport.SSE))) {
            one.client.subscribeWithRecovery("stream");
            one.client.connect();
            one.awaitConnected();
            for (long n = 0; n < 5; n++) send(own, one, n);
            one.awaitShown(5);
            Node.until("acknowledgements", () -> one.client.me().join().inbox() == 0);
            own.kill();
            own.spawn();
            for (long n = 5; n < 10; n++) send(own, one, n);
            one.awaitShown(10);
            publish(own, "{\"topic\":\"stream\"}", 10L);
            one.awaitConnected();
            one.awaitShown(11);
            assertEquals(numbers(11), one.shown);
            assertEquals(Transport.SSE, one.client.state().transport());
        }
    }

    @Test
    void whereWebSocketsAreBlockedItUsesAStream() {
        OkHttpClient http = new OkHttpClient.Builder()
                .addInterceptor(chain -> {
                    if (chain.request().header("Upgrade") != null) throw new IOException("blocked");
                    return chain.proceed(chain.request());
                })
                .build();
        try (Recorded one = new Recorded(node.url(), "blocked", 3_600, builder -> builder.httpClient(http))) {
            one.client.connect();
            Node.until("the stream", () -> one.client.state().transport() == Transport.SSE);
            send(node, one, "through");
            one.awaitShown(1);
        }
    }

    @Test
    void itemsPreferencesFirstCallAndVariants() {
        node.call(
                "PUT",
                "/v1/apps/dev/experiments/jvm-checkout",
                "{\"variants\":[{\"name\":\"green\",\"weight\":1,\"data\":{\"colour\":\"#0a0\"}}]}");
        try (Recorded one = new Recorded(node.url(), "centre", 3_600, builder -> {})) {
            NoroshiClient client = one.client;
            List<Long> counts = Collections.synchronizedList(new ArrayList<>());
            client.onUnread(unread -> counts.add(unread.unread()));
            client.connect();
            Node.until("the first count", () -> counts.equals(List.of(0L)));
            List<String> ids = new ArrayList<>();
            for (int n = 0; n < 3; n++)
                ids.add(text(node.call(
                        "POST",
                        "/v1/notifications",
                        "{\"to\":{\"users\":[\"user-of-centre\"]},\"notification\":{\"title\":\"" + n
                                + "\"},\"item\":{\"category\":\"orders\"}}")));
            Inbox inbox = client.inbox();
            Node.until(
                    "three unread", () -> inbox.unread().map(ItemCounts::unread).orElse(0L) == 3);
            assertEquals(Map.of("orders", 3L), inbox.unread().orElseThrow().categories());
            ItemPage page = inbox.list(ItemQuery.ALL.withLimit(2)).join();
            assertEquals(
                    List.of(ids.get(2), ids.get(1)),
                    page.items().stream().map(Item::id).toList());
            ItemPage rest = inbox.list(ItemQuery.ALL.withLimit(2).withAfter(page.next()))
                    .join();
            assertEquals(
                    List.of(ids.get(0)), rest.items().stream().map(Item::id).toList());
            assertEquals(1, inbox.markRead(Which.ids(ids.get(0))).join().changed());
            assertEquals(2, inbox.markRead(Which.upTo(ids.get(2))).join().changed());
            assertEquals(
                    2, inbox.archive(Which.ids(ids.get(0), ids.get(1))).join().changed());
            assertEquals(1, inbox.unarchive(Which.ids(ids.get(0))).join().changed());
            assertEquals(
                    1, inbox.markUnread(Which.ids(ids.get(0))).join().counts().unread());

            client.opened(ids.get(0));
            Node.until("the report", () -> node.call("GET", "/v1/notifications/" + ids.get(0) + "/devices/centre", null)
                    .contains("opened"));

            Preferences muted = Preferences.NONE.withMutedTopics(List.of("x"));
            assertEquals(muted, client.preferences().set(muted).join());
            assertEquals(muted, client.preferences().get().join());
            client.preferences().delete().join();
            assertEquals(Preferences.NONE, client.userPreferences().get().join());
            CompletionException failure = assertThrows(CompletionException.class, () -> client.preferences()
                    .set(Preferences.NONE.withChannels(List.of("pigeon")))
                    .join());
            ProblemException problem = assertInstanceOf(ProblemException.class, failure.getCause());
            assertEquals(400, problem.status());

            assertEquals("centre", client.me().join().device());
            Node.until("an empty inbox", () -> client.me().join().inbox() == 0);
            Node.until(
                    "an unchanged answer",
                    () -> client.me().join() == client.me().join());
            assertSame(client.me().join(), client.me().join());
            Variant variant = client.variant("jvm-checkout").join().orElseThrow();
            assertEquals("green", variant.variant());
            assertEquals("{\"colour\":\"#0a0\"}", variant.dataJson());
            assertTrue(client.variant("another").join().isEmpty());
            assertEquals(List.of(), one.errors);
        }
    }

    private static String text(String receipt) {
        try {
            return Fields.parse(receipt).text("id", "");
        } catch (Json.SyntaxError error) {
            throw new AssertionError(error);
        }
    }

    /** O6 */
    @Test
    void reportsSurviveTheProcess(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("reports");
        String id;
        try (Recorded one = Recorded.connected(node.url(), "kept")) {
            send(node, one, 1L);
            one.awaitShown(1);
            id = publish(node, "{\"users\":[\"user-of-kept\"]}", 2L);
            one.awaitShown(2);
        }
        NoroshiClient offline = NoroshiClient.builder("http://127.0.0.1:1", request -> "token")
                .storage(ReportStorage.file(file))
                .build();
        offline.opened(id);
        Node.until("the file", () -> Files.exists(file));
        try (NoroshiClient client = NoroshiClient.builder(node.url(), request -> Node.jwt("kept", 60))
                .storage(ReportStorage.file(file))
                .build()) {
            client.connect();
            Node.until("the report", () -> node.call("GET", "/v1/notifications/" + id + "/devices/kept", null)
                    .contains("opened"));
            Node.until("the file to be deleted", () -> !Files.exists(file));
        }
    }

    @Test
    void aListenerThatTakesTimeIsAcknowledgedLater() {
        try (Recorded one = new Recorded(node.url(), "slow", 3_600, builder -> {})) {
            CompletableFuture<Void> handled = new CompletableFuture<>();
            one.client.onMessageAsync(message -> handled);
            one.client.connect();
            one.awaitConnected();
            send(node, one, 0L);
            one.awaitShown(1);
            assertEquals(1, one.client.me().join().inbox());
            handled.complete(null);
            Node.until("the acknowledgement", () -> one.client.me().join().inbox() == 0);
        }
    }

    @Test
    void aCancelledRequestEndsAndAClosedClientConnectsAgain() {
        try (Recorded one = Recorded.connected(node.url(), "closed")) {
            CompletableFuture<Me> request = one.client.me();
            request.cancel(true);
            assertTrue(request.isCancelled());
            one.client.close();
            assertFalse(one.client.state().isConnected());
            one.client.connect();
            one.awaitConnected();
        }
    }
}
