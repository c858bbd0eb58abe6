package io.noroshi.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

/** Rules of the contract that no vector shows in full. */
class MachineRulesTest {
    private long now = Vectors.START_MS;
    private Machine machine = machine(Transport.WEBSOCKET);
    private final ArrayDeque<@Nullable String> tokens = new ArrayDeque<>(List.of("t1"));
    private final List<String> passed = new ArrayList<>();
    private final List<String> frames = new ArrayList<>();
    private final List<String> errors = new ArrayList<>();
    private final List<Effect.Request> requests = new ArrayList<>();
    private final List<Effect.Dial> dials = new ArrayList<>();

    private static Machine machine(Transport transport) {
        return new Machine(
                new Machine.Config(null, Acknowledge.HANDLED, 60_000, List.of(transport), List.of(), false, () -> 0));
    }

    private void carryOut() {
        for (List<Effect> effects; !(effects = machine.effects()).isEmpty(); )
            for (Effect effect : effects) {
                if (effect instanceof Effect.Pass pass)
                    passed.add(pass.message().id());
                if (effect instanceof Effect.Send send) frames.add(send.frame());
                if (effect instanceof Effect.Failed failed)
                    errors.add(failed.error().code());
                if (effect instanceof Effect.Request request) requests.add(request);
                if (effect instanceof Effect.Dial dial) dials.add(dial);
                if (effect instanceof Effect.AskToken ask) {
                    String token = tokens.poll();
                    machine.tokenArrived(now, ask.number(), token, token == null, null);
                }
            }
    }

    private void advance(long ms) {
        long end = now + ms;
        for (Long at; (at = machine.nextTimeoutMs()) != null && at <= end; ) {
            now = Math.max(now, at);
            machine.advance(now);
            carryOut();
        }
        now = end;
    }

    private int attempt() {
        return dials.get(dials.size() - 1).attempt();
    }

    private void connect() {
        machine.listen(now, true);
        machine.connect(now);
        carryOut();
        accept();
    }

    /** The service accepts the connection. */
    private void accept() {
        machine.opened(now, attempt());
        if (dials.get(0).transport() == Transport.WEBSOCKET) frame("{\"t\":\"ready\",\"device\":\"d1\"}");
        carryOut();
    }

    private void frame(String text) {
        machine.frame(now, attempt(), text);
        carryOut();
    }

    private static String message(String id, int offset) {
        return "{\"t\":\"msg\",\"id\":\"" + id + "\",\"topic\":\"news\",\"epoch\":\"e\",\"offset\":" + offset
                + ",\"ack\":true}";
    }

    /** Takes the only request that waits. */
    private Effect.Request request() {
        assertEquals(1, requests.size(), requests.toString());
        return requests.remove(0);
    }

    private void answer(Effect.Request request, int status, @Nullable Long retryAfterMs, String body) {
        machine.answered(now, request.number(), new Effect.Response(null, status, null, null, retryAfterMs, body));
        carryOut();
    }

    private List<String> variant(String experiment) {
        List<String> found = new ArrayList<>();
        machine.variant(
                now, experiment, true, (variant, error) -> found.add(variant == null ? "none" : variant.variant()));
        carryOut();
        return found;
    }

    private static String me(String user, String variant) {
        return "{\"device\":\"d1\",\"user\":\"" + user + "\",\"experiments\":{\"colour\":{\"variant\":\"" + variant
                + "\"}}}";
    }

    /** R7 */
    @Test
    void thePositionOfARecoveryDoesNotCountBetweenSessions() {
        machine.subscribe(now, "news", true, true);
        connect();
        frame("{\"t\":\"recovered\",\"topic\":\"news\",\"complete\":true,\"epoch\":\"e\",\"offset\":7}");
        frame(message("a", 8));
        frame("{\"t\":\"recovered\",\"topic\":\"news\",\"complete\":true,\"epoch\":\"e\",\"offset\":9}");
        machine.ended(now, attempt(), Machine.End.LOST);
        machine.settled(now, true, null);
        advance(500);
        frames.clear();
        accept();
        assertEquals(
                "{\"t\":\"sub\",\"topics\":[\"news\"],\"since\":{\"news\":{\"epoch\":\"e\",\"offset\":8}}}",
                frames.get(1));
    }

    /** S4 */
    @Test
    void signedOutDropsWhatWaits() {
        connect();
        frame(message("a", 1));
        frame(message("b", 2));
        assertEquals(List.of("a"), passed);
        frame("{\"t\":\"close\",\"reason\":\"expired\",\"reconnect\":true}");
        machine.ended(now, attempt(), Machine.End.LOST);
        carryOut();
        advance(0);
        assertEquals(CloseReasons.SIGNED_OUT, machine.state().reason());
        machine.settled(now, true, null);
        carryOut();
        assertEquals(List.of("a"), passed);
        assertEquals(0, machine.waitingMessages());
    }

    /** S4, U6 */
    @Test
    void closeRepeatsNoReadOfTheClient() {
        machine.wantUnread(now, true);
        connect();
        answer(request(), 503, 2_000L, "{}");
        machine.close(now);
        advance(60_000);
        assertEquals(List.of(), requests);
        assertEquals(List.of(), errors);
    }

    /** U6 */
    @Test
    void aReadThatWasCancelledIsNotRepeated() {
        int number = machine.me(now, (me, error) -> errors.add("done"));
        carryOut();
        answer(request(), 429, 1_000L, "{}");
        machine.cancel(number);
        advance(60_000);
        assertEquals(List.of(), requests);
        assertEquals(List.of(), errors);
    }

    /** U4, U5 */
    @Test
    void anExposureIsReportedForEachUser() {
        tokens.add("t2");
        List<String> first = variant("colour");
        answer(request(), 200, null, me("u1", "green"));
        assertEquals(List.of("green"), first);
        answer(request(), 401, null, "{}"); // of the exposure
        assertEquals("t2", requests.get(0).token());
        answer(request(), 200, null, "{}");
        List<String> second = variant("colour");
        assertEquals(List.of(), second, "the token is another one");
        answer(request(), 200, null, me("u2", "green"));
        assertEquals(List.of("green"), second);
        assertEquals("/v1/me/exposures", request().call().path());
        assertEquals(List.of("green"), variant("colour"));
    }

    /** U5 */
    @Test
    void anEarlierRequestDoesNotReplaceALaterAnswer() {
        machine.me(now, (me, error) -> {});
        carryOut();
        Effect.Request earlier = request();
        advance(50_000);
        machine.me(now, (me, error) -> {});
        carryOut();
        answer(request(), 200, null, me("u1", "blue"));
        answer(earlier, 200, null, me("u1", "green"));
        advance(20_000);
        assertEquals(List.of("blue"), variant("colour"));
    }

    /** O4 */
    @Test
    void aBadAcknowledgementOfAStreamLosesNoOther() {
        machine = machine(Transport.SSE);
        connect();
        machine.ack(now, List.of("a", "bad", "c"));
        carryOut();
        answer(request(), 400, null, "{\"code\":\"invalid_field\"}");
        Effect.Request half = request();
        assertEquals("{\"ids\":[\"a\"]}", half.call().body());
        answer(half, 200, null, "{}");
        answer(request(), 400, null, "{\"code\":\"invalid_field\"}");
        Effect.Request rest = request();
        assertEquals("{\"ids\":[\"c\"]}", rest.call().body());
        assertEquals(List.of("invalid_field"), errors);
    }

    /** X7, O4 */
    @Test
    void aPresenceThatIsRejectedIsNotRepeated() {
        machine = machine(Transport.SSE);
        connect();
        advance(100);
        machine.setPresence(now, Presence.IDLE);
        carryOut();
        answer(request(), 403, null, "{\"code\":\"forbidden\"}");
        advance(60_000);
        assertEquals(List.of(), requests);
        assertEquals(List.of("forbidden"), errors);
    }

    /** X7, P2 */
    @Test
    void aPresenceOfAnEarlierStreamIsNotRepeated() {
        machine = machine(Transport.SSE);
        connect();
        advance(100);
        machine.setPresence(now, Presence.IDLE);
        carryOut();
        Effect.Request report = request();
        machine.ended(now, attempt(), Machine.End.LOST);
        machine.setPresence(now, Presence.ACTIVE);
        carryOut();
        answer(report, 503, null, "{}");
        advance(500);
        accept();
        advance(60_000);
        assertEquals(List.of(), requests);
    }

    /** X8, B5: the hint of the event close counts, also if the token is renewed meanwhile. */
    @Test
    void aNewTokenOpensNoStreamAfterTheEventClose() {
        machine = machine(Transport.SSE);
        tokens.clear();
        tokens.add(Vectors.token(new Fields(Map.of("name", "t1", "lifetime_s", 20L)), now));
        tokens.add(Vectors.token(new Fields(Map.of("name", "t2", "lifetime_s", 3_600L)), now));
        connect();
        advance(15_500);
        frame("{\"t\":\"close\",\"reason\":\"drain\",\"reconnect\":true,\"after_ms\":20000}");
        advance(2_000);
        assertEquals(List.of(), List.copyOf(tokens), "the token was renewed");
        assertEquals(1, dials.size());
        machine.ended(now, attempt(), Machine.End.LOST);
        carryOut();
        advance(19_999);
        assertEquals(1, dials.size());
        advance(1);
        assertEquals("t2", Vectors.tokenName(Objects.requireNonNull(dials.get(1).token())));
    }

    /** L1 */
    @Test
    void lengthsAreThoseOfUtf16() {
        // Each costs 6 * 160 + 64 = 1,024 as 80 emoji of two code units: 58 of them are below 60,000, 59 are not.
        for (int n = 0; n < 59; n++) machine.subscribe(now, n + 10 + "😀".repeat(79), false, false);
        connect();
        assertEquals(58, size(frames.get(1)));
        assertEquals(1, size(frames.get(2)));
    }

    private static int size(String frame) {
        try {
            return Fields.parse(frame).texts("topics").size();
        } catch (Json.SyntaxError error) {
            throw new AssertionError(error);
        }
    }

    /** B3: the answer to a refused WebSocket has a hint. */
    @Test
    void aRefusedWebSocketWaitsAsLongAsTheServiceSays() {
        machine.connect(now);
        carryOut();
        machine.ended(now, attempt(), new Machine.End(0, 0, null, 7_000L));
        assertEquals(Duration.ofSeconds(7), machine.state().retryIn());
    }
}
