package io.noroshi.client;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.DoubleSupplier;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * The device's part of the protocol {@code noroshi.v1}. The rules are in CONTRACT.md, whose numbers are in the
 * comments.
 *
 * <p>A machine does no input or output, starts no thread, and reads neither clock nor random numbers of its own. A
 * caller reports what happened and at what time, and then carries out {@link #effects}; {@link #nextTimeoutMs} says
 * when to call {@link #advance}. It is not safe for concurrent use.
 */
final class Machine {
    private static final long CONNECT_TIMEOUT_MS = 15_000;
    private static final long PONG_TIMEOUT_MS = 10_000;
    private static final long STABLE_MS = 5_000;
    private static final long FLUSH_MS = 100;
    private static final long IDLE_MS = 10_000;
    private static final long WEBSOCKET_AGAIN_MS = 300_000;
    /**
     * Four minutes between comments of a stream, which has no {@code ping_s}, and half a minute for them to arrive
     * (X8).
     */
    private static final long STREAM_SILENCE_MS = 270_000;

    private static final long PING_S_DEFAULT = 240;
    private static final int ACKS_MAX = 10_000;
    private static final int REMEMBERED_MAX = 4_096;
    private static final int REJECTIONS_MAX = 5;
    /** U5: how long an answer counts. */
    private static final long VARIANTS_MS = 60_000;
    /** U6: from the call to the last repetition of a read. */
    private static final long REPEAT_MS = 30_000;

    private static final int REPEATS_MAX = 2;

    private static final int FRAME_ENTRIES_MAX = 1_000;
    /** Of JSON, in the worst case: below the 64 KiB of {@code limits.client_message} (L1). */
    private static final int FRAME_BYTES_MAX = 60_000;

    private static final int REPORTS_MAX = 1_000;
    private static final int EXPOSURES_MAX = 100;

    /**
     * @param keptReports reports that an earlier process left
     * @param keeps whether {@link Effect.Keep} is wanted
     * @param random numbers from 0 up to, but not including, 1
     */
    record Config(
            @Nullable String app,
            Acknowledge acknowledge,
            long pingIntervalMs,
            List<Transport> transports,
            List<String> keptReports,
            boolean keeps,
            DoubleSupplier random) {}

    /**
     * How a connection ended. {@code code}: of a WebSocket. {@code status}, {@code problem}: of a stream that did not
     * begin.
     */
    record End(int code, int status, @Nullable String problem, @Nullable Long retryAfterMs) {
        static final End LOST = new End(0, 0, null, null);

        static End code(int code) {
            return new End(code, 0, null, null);
        }
    }

    private record Closing(String reason, boolean mayReconnect, @Nullable Long afterMs) {}

    private static final class Topic {
        boolean recovers;
        boolean hasListener;
    }

    /** An answer with status 200 to 299 or 304, and the token of its request. */
    record Answer(Effect.Response response, String token) {}

    private static final class PendingCall {
        final Effect.Call call;
        final long beganAtMs;
        final BiConsumer<@Nullable Answer, @Nullable NoroshiException> done;

        String token = "";
        /** 401 rejects the token once (T6). */
        boolean isRejected;
        /** U6 */
        int repeats;

        PendingCall(Effect.Call call, long beganAtMs, BiConsumer<@Nullable Answer, @Nullable NoroshiException> done) {
            this.call = call;
            this.beganAtMs = beganAtMs;
            this.done = done;
        }
    }

    /** What the service says about the device: an answer to {@code GET /v1/me}, and its request (U3, U5). */
    private record Known(Me me, @Nullable String etag, String token, long askedAtMs) {}

    /** U4 */
    private record Exposure(String device, @Nullable String user, String experiment, String variant) {}

    private final Config config;
    private long nowMs;
    private final ArrayDeque<Effect> effects = new ArrayDeque<>();
    private final ArrayDeque<Runnable> tasks = new ArrayDeque<>();
    final Timers timers = new Timers();
    private final Tokens tokens = new Tokens(this);
    private final Inflow inflow = new Inflow(this);

    private State state = State.of(State.Status.IDLE);
    private Transport transport;
    /** The number of the newest connection. Reports about others are outdated. */
    private int attempt;

    private boolean isDialed;
    private boolean isOpen;
    private int failures;
    /** In a row. */
    private int rejections;
    /** Attempts in a row of the WebSocket that found no server. */
    private int unopened;
    /** X3: streams in between do not postpone it. */
    private @Nullable Long websocketAtMs;
    /** {@code null} outside of a session. */
    private @Nullable Long readyAtMs;

    private @Nullable Closing closing;
    private boolean waitsForHint;
    private boolean isTooSlow;
    private long heardAtMs;
    private long flushedAtMs;
    private boolean willFlush;
    private int renewals;
    /** The token of a frame that was not answered with an error. */
    private @Nullable String sentToken;
    /** The token of the session; requests may have got a newer one. */
    private @Nullable String token;
    /** The topics in the request of a stream. */
    private String dialedTopics = "";

    private final LinkedHashMap<String, Topic> topics = new LinkedHashMap<>();
    /** Topics that a session had: without a position a gap cannot be excluded (R3). */
    private final Set<String> joined = new HashSet<>();

    private final LinkedHashSet<String> toSub = new LinkedHashSet<>();
    private final LinkedHashSet<String> toUnsub = new LinkedHashSet<>();
    /** Topics whose position the service was asked for (R2). */
    private final Set<String> asked = new HashSet<>();

    private final LinkedHashSet<String> acks = new LinkedHashSet<>();
    /** What the application acknowledged itself, for the case that it arrives again (D2). */
    private final LinkedHashSet<String> acked = new LinkedHashSet<>();

    private boolean isListening;
    private Presence presence = Presence.ACTIVE;
    private Presence sentPresence = Presence.ACTIVE;
    /** {@code null} follows {@link #setHidden}. */
    private @Nullable Presence preference;

    private boolean isHidden;

    private int callNumber;
    private final Map<Integer, PendingCall> calls = new HashMap<>();
    private final Outbox opened;
    private final Outbox exposures;
    private final Outbox streamAcks;
    private final Outbox streamPresence;
    private final List<Outbox> outboxes;
    private @Nullable Known known;
    private final Set<Exposure> exposed = new HashSet<>();
    private boolean wantsUnread;
    private @Nullable ItemCounts counts;
    /** The client's own request for counts. */
    private int countsCall;
    /** Increases with each report of counts, so that older answers are recognized (U2). */
    private int countsVersion;

    Machine(Config config) {
        this.config = config;
        transport = config.transports.get(0);
        opened = new Outbox(this, Timers.Id.OPENED, "/v1/me/opened", "ids", 1_000, REPORTS_MAX, config.keeps);
        exposures = new Outbox(
                this, Timers.Id.EXPOSURES, "/v1/me/exposures", "experiments", EXPOSURES_MAX, EXPOSURES_MAX, false);
        streamAcks = new Outbox(this, Timers.Id.ACKS, "/v1/me/inbox/ack", "ids", 1_000, ACKS_MAX, false);
        streamPresence = Outbox.ofState(this, Timers.Id.PRESENCE, "/v1/me/presence", "state");
        outboxes = List.of(opened, exposures, streamAcks, streamPresence);
        opened.waiting.addAll(config.keptReports);
    }

    // Time and effects.

    /** What to carry out since the last call, in order. */
    List<Effect> effects() {
        List<Effect> all = new ArrayList<>(effects);
        effects.clear();
        return all;
    }

    /** When {@link #advance} is due. */
    @Nullable
    Long nextTimeoutMs() {
        Timers.Timer next = timers.next();
        return next == null ? null : (Long) next.atMs();
    }

    /** Handles every timer that is due. */
    void advance(long now) {
        for (Timers.Timer next; (next = timers.next()) != null && next.atMs() <= now; ) {
            timers.clear(next.key());
            input(now, next.fire());
        }
    }

    State state() {
        return state;
    }

    /** How many messages wait for the application. */
    int waitingMessages() {
        return inflow.size();
    }

    long now() {
        return nowMs;
    }

    double random() {
        return config.random.getAsDouble();
    }

    void effect(Effect effect) {
        effects.add(effect);
    }

    void fail(NoroshiException error) {
        effect(new Effect.Failed(error));
    }

    void timer(Timers.Key key, long afterMs, Runnable fire) {
        timers.set(key, nowMs + afterMs, fire);
    }

    /** Runs a task at the end of the present input. */
    void later(Runnable task) {
        tasks.add(task);
    }

    private void input(long now, Runnable handle) {
        nowMs = now;
        handle.run();
        for (Runnable task; (task = tasks.poll()) != null; ) task.run();
    }

    private void become(State next) {
        state = next;
        effect(new Effect.StateChanged(next));
        if (!next.isConnected()) return;
        wakeOutboxes();
        if (wantsUnread) refreshCounts(); // U1
    }

    private boolean isIn(State.Status... any) {
        for (State.Status one : any) if (state.status() == one) return true;
        return false;
    }

    private boolean isStopped() {
        return isIn(State.Status.IDLE, State.Status.CLOSED);
    }

    private boolean inSession() {
        return readyAtMs != null;
    }

    private boolean isOneWay() {
        return transport == Transport.SSE;
    }

    // Calls of the application.

    /** S5 */
    void connect(long now) {
        input(now, () -> {
            outboxes.forEach(Outbox::open);
            if (!isStopped()) return;
            failures = rejections = unopened = 0;
            open();
        });
    }

    /** S4 */
    void close(long now) {
        input(now, () -> {
            if (!isStopped()) {
                closing = new Closing(CloseReasons.CLOSED, false, null);
                flush();
                stop(CloseReasons.CLOSED);
            }
            outboxes.forEach(Outbox::close);
        });
    }

    void subscribe(long now, String topic, boolean recovers, boolean hasListener) {
        input(now, () -> {
            Topic known = topics.get(topic);
            if (known == null) {
                topics.put(topic, known = new Topic());
                toUnsub.remove(topic);
                toSub.add(topic);
                soon();
            }
            known.recovers = recovers;
            known.hasListener = hasListener;
        });
    }

    void unsubscribe(long now, String topic) {
        input(now, () -> {
            if (!topics.containsKey(topic)) return;
            forget(topic);
            toUnsub.add(topic);
            soon();
        });
    }

    /** Whether the application handles messages, whatever their topic. */
    void listen(long now, boolean listens) {
        input(now, () -> isListening = listens);
    }

    void ack(long now, Collection<String> ids) {
        input(now, () -> ids.forEach(this::ack));
    }

    /** The result of {@link Effect.Pass}. Without a cause, a message that was not handled had no listener (A4). */
    void settled(long now, boolean isHandled, @Nullable Throwable cause) {
        input(now, () -> {
            if (cause != null && inflow.isPassed()) // A2
            fail(new NoroshiException("listener_failed", "a listener failed: " + cause, cause));
            inflow.settled(isHandled && cause == null);
        });
    }

    /** P1. {@code null} follows {@link #setHidden}. */
    void setPresence(long now, @Nullable Presence presence) {
        input(now, () -> {
            preference = presence;
            updatePresence();
        });
    }

    void setHidden(long now, boolean hidden) {
        input(now, () -> {
            if (hidden == isHidden) return;
            isHidden = hidden;
            if (hidden) {
                timer(Timers.Id.IDLE, IDLE_MS, this::updatePresence);
                return;
            }
            updatePresence();
            wake();
        });
    }

    void networkReturned(long now) {
        input(now, () -> {
            wake();
            wakeOutboxes();
        });
    }

    private void wake() {
        if (isIn(State.Status.WAITING) && !waitsForHint) open(); // B5
        else if (state.isConnected()) ping(); // H3
    }

    private void updatePresence() {
        timers.clear(Timers.Id.IDLE);
        presence = preference != null ? preference : isHidden ? Presence.IDLE : Presence.ACTIVE;
        soon();
    }

    // Connecting.

    private void open() {
        timers.clear(Timers.Id.RETRY);
        int current = ++attempt;
        closing = null;
        readyAtMs = null;
        isOpen = false;
        become(State.of(State.Status.CONNECTING));
        tokens.take((taken, error) -> {
            if (current != attempt) return;
            if (taken != null) dial(taken);
            else if (error != null && error.code().equals(CloseReasons.SIGNED_OUT)) stop(CloseReasons.SIGNED_OUT); // T7
            else if (error != null) {
                fail(error);
                retry(CloseReasons.LOST, Backoff.ms(failures++, random()), false);
            }
        });
    }

    private void dial(String taken) {
        // X1: another transport after two attempts that found no server.
        transport = config.transports.get(unopened >= 2 && config.transports.size() > 1 ? 1 : 0);
        int current = attempt;
        timer(Timers.Id.CONNECT, CONNECT_TIMEOUT_MS, () -> ended(current, End.LOST)); // S3
        dialedTopics = topicNames();
        token = taken;
        isDialed = true;
        effect(
                isOneWay()
                        ? new Effect.Dial(attempt, transport, config.app, taken, streamTopics(), inflow.lastId)
                        : new Effect.Dial(attempt, transport, config.app, null, List.of(), null));
    }

    /** The WebSocket is open, or the stream has begun with status 200. */
    void opened(long now, int reported) {
        input(now, () -> {
            if (reported != attempt) return;
            isOpen = true;
            if (isOneWay()) {
                unopened = 2;
                ready(null, PING_S_DEFAULT); // X6
                return;
            }
            unopened = 0;
            Map<String, Object> frame = new LinkedHashMap<>();
            frame.put("t", "connect");
            frame.put("token", token == null ? "" : token);
            send(frame); // F1
        });
    }

    /** Bytes arrived. */
    void heard(long now, int reported) {
        input(now, () -> heard(reported));
    }

    private void heard(int reported) {
        if (reported != attempt) return;
        heardAtMs = nowMs;
        timers.clear(Timers.Id.PONG);
    }

    /** The connection ended, or could not be opened. */
    void ended(long now, int reported, End end) {
        input(now, () -> ended(reported, end));
    }

    private void ended(int reported, End end) {
        if (reported != attempt) return;
        if (!isOpen) unopened = isOneWay() ? 0 : unopened + 1; // X1, X2
        lost(end);
    }

    private void lost(End end) {
        Closing told = closing;
        Long ready = readyAtMs;
        String used = token;
        String byCode = CloseReasons.of(end.code);
        String reason = told != null
                ? told.reason
                : byCode != null
                        ? byCode
                        : end.status != 401
                                ? CloseReasons.LOST
                                : end.problem != null ? end.problem : CloseReasons.UNAUTHORIZED;
        detach();
        if (ready != null && nowMs - ready >= STABLE_MS) failures = 0; // B2
        if (CloseReasons.rejectsToken(reason) || end.status == 401) { // C3
            tokens.reject(used);
            if (++rejections > REJECTIONS_MAX) {
                fail(new NoroshiException(
                        CloseReasons.UNAUTHORIZED, "the service rejected " + rejections + " tokens in a row"));
                stop(CloseReasons.UNAUTHORIZED);
                return;
            }
            int before = failures++;
            long wait = rejections > 1
                    ? Backoff.ms(before, random())
                    : reason.equals("revoked") ? Math.round(1_000 + 1_000 * random()) : 0;
            retry(reason, wait, false);
            return;
        }
        if (reason.equals("replaced") || told != null && !told.mayReconnect) { // C2, C4
            stop(reason);
            return;
        }
        Long hint = told != null && told.afterMs != null ? told.afterMs : end.retryAfterMs;
        int before = failures++;
        // B3: a hint counts as it is, and at least as the backoff of earlier failures.
        long own = hint == null || before > 0 ? Backoff.ms(before, random()) : 0;
        retry(reason, hint == null ? own : Math.max(hint, own), hint != null && hint >= own);
    }

    private void retry(String reason, long waitMs, boolean isHint) {
        waitsForHint = isHint;
        become(new State(State.Status.WAITING, reason, Duration.ofMillis(waitMs), null, null));
        timer(Timers.Id.RETRY, waitMs, this::open);
    }

    /** The connection is dead to this client: no event of it is handled. */
    private void detach() {
        int ended = attempt++;
        timers.clear(
                Timers.Id.CONNECT,
                Timers.Id.PONG,
                Timers.Id.BEAT,
                Timers.Id.RENEW,
                Timers.Id.WEBSOCKET,
                Timers.Id.FLUSH,
                Timers.Id.RETRY);
        willFlush = false;
        renewals = 0;
        readyAtMs = null;
        streamPresence.clear(); // X7
        if (!isDialed) return;
        isDialed = false;
        effect(new Effect.Hangup(ended));
    }

    private void stop(String reason) {
        detach();
        timers.clear(Timers.Id.IDLE);
        isTooSlow = false;
        inflow.drop(); // S4
        cancel(countsCall);
        become(new State(State.Status.CLOSED, reason, null, null, null));
    }

    /** The next connection has the new token and topics in any case; a hint of the service decides when it begins. */
    private void reopen() {
        if (closing != null) return; // S4, X4
        detach();
        open();
    }

    // Frames of the service.

    void frame(long now, int reported, String text) {
        input(now, () -> {
            if (reported != attempt) return;
            heard(reported);
            frame(text);
        });
    }

    /** F4 */
    void binary(long now, int reported) {
        input(now, () -> {
            if (reported != attempt) return;
            heard(reported);
            badFrame("a binary message", null);
        });
    }

    private void badFrame(String message, @Nullable Throwable cause) {
        fail(new NoroshiException("bad_frame", "not a frame of the service: " + message, cause));
    }

    private void frame(String text) {
        Fields frame;
        try {
            frame = Fields.parse(text);
        } catch (Json.SyntaxError cause) {
            badFrame(cause.getMessage(), cause);
            return;
        }
        String type = frame.text("t");
        if (type == null) {
            badFrame("the field t is missing", null);
            return;
        }
        switch (type) {
            case "msg" -> with(frame, "id", id -> message(Message.of(id, frame)));
            case "ready" -> ready(frame.text("device"), frame.number("ping_s", PING_S_DEFAULT));
            case "recovered" -> with(frame, "topic", topic -> recovered(topic, frame));
            case "items" -> {
                ItemCounts newest = ItemCounts.of(frame);
                update(newest);
                effect(new Effect.ItemsChangedBy(new ItemsEvent(
                        frame.text("event", ""), frame.texts("ids"), Boolean.TRUE.equals(frame.flag("more")), newest)));
            }
            case "error" -> refused(frame);
            case "close" ->
                with(frame, "reason", reason -> {
                    Long after = frame.number("after_ms");
                    closing = new Closing(
                            reason,
                            !Boolean.FALSE.equals(frame.flag("reconnect")),
                            after == null ? null : (Long) Math.max(0, Math.min(after, 86_400_000)));
                    timer(Timers.Id.CONNECT, PONG_TIMEOUT_MS, () -> lost(End.LOST)); // C5
                    flush(); // A5: a draining node accepts acknowledgements until the connection ends.
                });
            default -> {} // F5
        }
    }

    private void with(Fields frame, String name, Consumer<String> use) {
        String value = frame.text(name);
        if (value == null) badFrame("the field " + name + " is missing", null);
        else use.accept(value);
    }

    private void message(Message message) {
        if (config.acknowledge == Acknowledge.RECEIVED && message.isStored()) ack(message.id());
        if (inflow.receive(message)) return;
        // L2: messages that were not handled arrive again after the application has caught up.
        isTooSlow = true;
        detach();
        waitsForHint = true;
        fail(new NoroshiException(CloseReasons.QUEUE_FULL, Inflow.QUEUE_MAX + " messages wait for the application"));
        become(new State(State.Status.WAITING, CloseReasons.QUEUE_FULL, null, null, null));
    }

    void caughtUp() {
        if (!isTooSlow || inflow.size() > 0) return;
        isTooSlow = false;
        if (isIn(State.Status.WAITING) && CloseReasons.QUEUE_FULL.equals(state.reason())) open();
    }

    private void recovered(String topic, Fields frame) {
        boolean isAnswer = asked.remove(topic);
        int session = inflow.session;
        String epoch = frame.text("epoch");
        Long offset = frame.number("offset");
        inflow.after(() -> {
            Topic known = topics.get(topic);
            if (known == null || !known.recovers) return;
            if (epoch != null && offset != null && inSession() && session == inflow.session) // R7
            inflow.reach(topic, epoch, offset);
            if (isAnswer) return;
            boolean isComplete = Boolean.TRUE.equals(frame.flag("complete"));
            effect(new Effect.RecoveryEnded(
                    new Recovered( // R4
                            topic, isComplete ? Recovered.Completeness.COMPLETE : Recovered.Completeness.INCOMPLETE)));
        });
    }

    private void refused(Fields frame) {
        String code = frame.text("code", "bad_frame");
        String topic = frame.text("topic");
        String reason = frame.text("reason");
        if (topic != null && code.startsWith("topic_")) { // F8
            forget(topic);
            effect(new Effect.SubscriptionDenied(new Denied(topic, code, reason == null ? "" : reason)));
            return;
        }
        String sent = sentToken;
        boolean isRejected = code.equals("unauthorized") || code.equals("expired");
        if (sent != null && (isRejected || code.equals("rate_limited") || code.equals("overloaded"))) { // T5
            sentToken = null;
            if (isRejected) tokens.reject(sent);
            renewLater(!isRejected);
        }
        fail(new NoroshiException(code, frame.text("message", ""), null, topic, reason)); // F6
    }

    private void ready(@Nullable String device, long pingS) {
        if (inSession()) return;
        timers.clear(Timers.Id.CONNECT);
        readyAtMs = heardAtMs = nowMs;
        rejections = 0;
        inflow.restart(isOneWay());
        sentPresence = Presence.ACTIVE; // P2
        flushedAtMs = nowMs - FLUSH_MS;
        toUnsub.clear();
        asked.clear();
        topics.forEach((name, topic) -> { // R1
            toSub.add(name);
            if (!topic.recovers || !joined.contains(name)) return;
            boolean isKnown = isOneWay() ? inflow.lastId != null : inflow.positions.containsKey(name);
            if (!isKnown) report(name, Recovered.Completeness.INCOMPLETE); // R3
            else if (isOneWay()) report(name, Recovered.Completeness.UNKNOWN); // X6
        });
        long interval = Math.min(config.pingIntervalMs, Math.max(1, pingS > 0 ? pingS : PING_S_DEFAULT) * 1_000);
        beat(isOneWay() ? STREAM_SILENCE_MS : interval);
        scheduleRenewal();
        if (!isOneWay()) websocketAtMs = null;
        else if (config.transports.size() > 1) { // X3
            if (websocketAtMs == null) websocketAtMs = nowMs + WEBSOCKET_AGAIN_MS;
            timers.set(Timers.Id.WEBSOCKET, websocketAtMs, () -> {
                websocketAtMs = null;
                unopened = 0;
                reopen();
            });
        }
        become(new State(State.Status.CONNECTED, null, null, transport, device));
        flush();
    }

    private void report(String topic, Recovered.Completeness completeness) {
        effect(new Effect.RecoveryEnded(new Recovered(topic, completeness)));
    }

    private void forget(String topic) {
        topics.remove(topic);
        joined.remove(topic);
        asked.remove(topic);
        toSub.remove(topic);
        inflow.positions.remove(topic); // R6
    }

    // Heartbeat: H1, H2, X8.

    private void beat(long intervalMs) {
        timer(Timers.Id.BEAT, intervalMs, () -> checkSilence(intervalMs));
    }

    private void checkSilence(long intervalMs) {
        long left = heardAtMs + intervalMs - nowMs;
        if (left > 0) {
            timer(Timers.Id.BEAT, left, () -> checkSilence(intervalMs));
        } else if (isOneWay()) lost(End.LOST);
        else {
            ping();
            beat(intervalMs);
        }
    }

    private void ping() {
        if (isOneWay() || timers.isSet(Timers.Id.PONG)) return;
        send(Map.of("t", "ping"));
        timer(Timers.Id.PONG, PONG_TIMEOUT_MS, () -> lost(End.LOST));
    }

    // Renewal of the token: T4, T5, X8.

    private void scheduleRenewal() {
        sentToken = null;
        if (tokens.renewAtMs != Tokens.NEVER)
            timers.set(Timers.Id.RENEW, Math.max(nowMs, tokens.renewAtMs), () -> renew(false));
    }

    private void renewLater(boolean withCurrent) {
        timer(Timers.Id.RENEW, Backoff.ms(3 + renewals++, random()), () -> renew(withCurrent));
    }

    private void renew(boolean withCurrent) {
        int current = attempt;
        BiConsumer<@Nullable String, @Nullable NoroshiException> done = (next, error) -> {
            if (current != attempt || !state.isConnected()) return;
            if (error != null && error.code().equals(CloseReasons.SIGNED_OUT)) stop(CloseReasons.SIGNED_OUT);
            else if (error != null) {
                fail(error);
                renewLater(false);
            } else if (next != null) renewed(next);
        };
        if (withCurrent) tokens.take(done);
        else tokens.renew(done);
    }

    private void renewed(String next) {
        if (isOneWay()) {
            reopen();
            return;
        }
        Map<String, Object> frame = new LinkedHashMap<>();
        frame.put("t", "token");
        frame.put("token", next);
        send(frame);
        scheduleRenewal();
        sentToken = token = next;
    }

    /** The answer to {@link Effect.AskToken}. */
    void tokenArrived(long now, int number, @Nullable String token, boolean isSignedOut, @Nullable Throwable cause) {
        input(now, () -> tokens.arrived(number, token, isSignedOut, cause));
    }

    // Acknowledgements.

    boolean hasListener(@Nullable String topic) {
        Topic known = topics.get(topic);
        return isListening || known != null && known.hasListener;
    }

    boolean isSubscribed(String topic) {
        return topics.containsKey(topic);
    }

    void acknowledgeHandled(String id) {
        if (config.acknowledge == Acknowledge.HANDLED || acked.contains(id)) ack(id);
    }

    private void ack(String id) {
        acks.add(id);
        if (config.acknowledge == Acknowledge.MANUAL) {
            acked.add(id);
            if (acked.size() > REMEMBERED_MAX) removeOldest(acked);
        }
        if (acks.size() > ACKS_MAX) removeOldest(acks); // O1
        soon();
    }

    private static void removeOldest(LinkedHashSet<String> set) {
        Iterator<String> oldest = set.iterator();
        oldest.next();
        oldest.remove();
    }

    // Sending.

    /** F7: at the end of this input, or 100 ms after the last flush. */
    private void soon() {
        if (!inSession() || willFlush) return;
        willFlush = true;
        long left = flushedAtMs + FLUSH_MS - nowMs;
        if (left > 0) {
            timer(Timers.Id.FLUSH, left, this::flush);
            return;
        }
        int current = attempt;
        later(() -> {
            if (current == attempt && willFlush) flush();
        });
    }

    /** F3: the order of what is sent. */
    private void flush() {
        if (!inSession()) return;
        timers.clear(Timers.Id.FLUSH);
        willFlush = false;
        if (presence != sentPresence) { // P3
            sentPresence = presence;
            flushedAtMs = nowMs;
            if (isOneWay()) streamPresence.add(List.of(presence.toString())); // X7
            else {
                Map<String, Object> frame = new LinkedHashMap<>();
                frame.put("t", "presence");
                frame.put("state", presence.toString());
                send(frame);
            }
        }
        List<String> unsub = take(toUnsub);
        List<String> sub = take(toSub);
        List<String> ids = take(acks);
        joined.addAll(sub);
        if (isOneWay()) {
            for (String topic : sub)
                if (hasComma(topic)) // X4
                fail(new NoroshiException("bad_topic", "a stream has no topics with a comma", null, topic, null));
            if (!ids.isEmpty()) {
                flushedAtMs = nowMs;
                streamAcks.add(ids); // X7
            }
            if (!dialedTopics.equals(topicNames())) reopen(); // X4
            return;
        }
        for (List<String> part : parts(unsub)) sendList("unsub", "topics", part, Map.of());
        for (List<String> part : parts(sub)) sendList("sub", "topics", part, since(part));
        for (List<String> part : parts(ids)) sendList("ack", "ids", part, Map.of());
    }

    /** R2 */
    private Map<String, @Nullable Object> since(List<String> part) {
        Map<String, @Nullable Object> since = new LinkedHashMap<>();
        for (String name : part) {
            Topic topic = topics.get(name);
            if (topic == null || !topic.recovers) continue;
            Inflow.Position position = inflow.positions.get(name);
            if (position == null) {
                since.put(name, null);
                asked.add(name);
                continue;
            }
            Map<String, Object> json = new LinkedHashMap<>();
            json.put("epoch", position.epoch());
            json.put("offset", position.offset());
            since.put(name, json);
        }
        return since;
    }

    private void sendList(String type, String field, List<String> part, Map<String, @Nullable Object> since) {
        Map<String, Object> frame = new LinkedHashMap<>();
        frame.put("t", type);
        frame.put(field, part);
        if (!since.isEmpty()) frame.put("since", since);
        flushedAtMs = nowMs;
        send(frame);
    }

    private void send(Map<String, ?> frame) {
        effect(new Effect.Send(attempt, Json.write(frame)));
    }

    private static List<String> take(LinkedHashSet<String> set) {
        List<String> all = List.copyOf(set);
        set.clear();
        return all;
    }

    /** X4: a comma separates topics of a stream. */
    private static boolean hasComma(String topic) {
        return topic.indexOf(',') >= 0;
    }

    private List<String> streamTopics() {
        return topics.keySet().stream().filter(topic -> !hasComma(topic)).toList();
    }

    /** Compares sets of topics. */
    private String topicNames() {
        return String.join(",", new TreeSet<>(streamTopics()));
    }

    /** L1: at most 1,000 texts and 64 KiB in a frame. */
    private static List<List<String>> parts(List<String> texts) {
        List<List<String>> parts = new ArrayList<>();
        int start = 0;
        int bytes = 0;
        for (int n = 0; n < texts.size(); n++) {
            // Three bytes of UTF-8 a code unit, once more in `since` with its position.
            int cost = 6 * texts.get(n).length() + 64;
            if (n > start && (n - start >= FRAME_ENTRIES_MAX || bytes + cost > FRAME_BYTES_MAX)) {
                parts.add(texts.subList(start, n));
                start = n;
                bytes = 0;
            }
            bytes += cost;
        }
        if (start < texts.size()) parts.add(texts.subList(start, texts.size()));
        return parts;
    }

    // The HTTP API.

    private void wakeOutboxes() {
        outboxes.forEach(Outbox::wake);
    }

    /** O2 */
    void reportOpened(long now, Collection<String> ids) {
        input(now, () -> opened.add(ids));
    }

    /**
     * Begins a request and returns its number. {@code done} gets an answer with status 200 to 299 or 304, or an error.
     */
    int request(long now, Effect.Call call, BiConsumer<@Nullable Answer, @Nullable NoroshiException> done) {
        int[] number = new int[1];
        input(now, () -> number[0] = request(call, done));
        return number[0];
    }

    int request(Effect.Call call, BiConsumer<@Nullable Answer, @Nullable NoroshiException> done) {
        int number = ++callNumber;
        calls.put(number, new PendingCall(call, nowMs, done));
        sendCall(number);
        return number;
    }

    private void sendCall(int number) {
        tokens.take((taken, error) -> {
            PendingCall pending = calls.get(number);
            if (pending == null) return;
            if (taken == null) {
                calls.remove(number);
                pending.done.accept(null, error);
                return;
            }
            pending.token = taken;
            effect(new Effect.Request(number, pending.call, taken));
        });
    }

    /** Forgets a request. */
    void cancel(int number) {
        calls.remove(number);
        timers.clear(new Timers.RepeatOf(number));
    }

    /** The answer to {@link Effect.Request}. */
    void answered(long now, int number, Effect.Response response) {
        input(now, () -> {
            PendingCall pending = calls.get(number);
            if (pending == null) return;
            int status = response.status();
            if (response.error() == null && status == 401 && !pending.isRejected) { // T6
                pending.isRejected = true;
                tokens.reject(pending.token);
                sendCall(number);
                return;
            }
            if (isRepeatable(pending, response)) { // U6
                pending.repeats++;
                timer(
                        new Timers.RepeatOf(number),
                        Objects.requireNonNull(response.retryAfterMs()),
                        () -> sendCall(number));
                return;
            }
            calls.remove(number);
            if (response.error() != null) pending.done.accept(null, response.error());
            else if (status >= 200 && status < 300 || status == 304)
                pending.done.accept(new Answer(response, pending.token), null);
            else pending.done.accept(null, problem(response));
        });
    }

    private boolean isRepeatable(PendingCall pending, Effect.Response response) {
        Long wait = response.retryAfterMs();
        return response.error() == null
                && pending.call.method().equals("GET")
                && (response.status() == 429 || response.status() == 503)
                && wait != null
                && pending.repeats < REPEATS_MAX
                && nowMs + wait <= pending.beganAtMs + REPEAT_MS;
    }

    private static ProblemException problem(Effect.Response response) {
        Fields problem;
        try {
            problem = Fields.parse(response.body());
        } catch (Json.SyntaxError pageOfAProxy) {
            problem = new Fields(Map.of());
        }
        String detail = problem.text("detail", problem.text("title", "status " + response.status()));
        return new ProblemException(
                problem.text("code", "http_" + response.status()),
                detail,
                response.status(),
                problem.text("field"),
                response.requestId(),
                response.retryAfterMs() == null ? null : Duration.ofMillis(response.retryAfterMs()));
    }

    /** A request whose answer is a JSON object. */
    <T> int fetch(
            long now,
            Effect.Call call,
            Function<Fields, T> convert,
            BiConsumer<@Nullable T, @Nullable NoroshiException> done) {
        return request(now, call, parsed(convert, done));
    }

    private static <T> BiConsumer<@Nullable Answer, @Nullable NoroshiException> parsed(
            Function<Fields, T> convert, BiConsumer<@Nullable T, @Nullable NoroshiException> done) {
        return (answer, error) -> {
            if (answer == null) {
                done.accept(null, error);
                return;
            }
            T value;
            try {
                value = convert.apply(Fields.parse(answer.response().body()));
            } catch (Json.SyntaxError cause) {
                done.accept(
                        null, new NoroshiException("network", "the answer is not JSON: " + cause.getMessage(), cause));
                return;
            }
            done.accept(value, null);
        };
    }

    /** U3 */
    int me(long now, BiConsumer<@Nullable Me, @Nullable NoroshiException> done) {
        int[] number = new int[1];
        input(now, () -> number[0] = readMe(done));
        return number[0];
    }

    private int readMe(BiConsumer<@Nullable Me, @Nullable NoroshiException> done) {
        Known before = known;
        long askedAtMs = nowMs;
        return request(
                new Effect.Call("GET", "/v1/me", Map.of(), before == null ? null : before.etag, null),
                (answer, error) -> {
                    if (answer != null && before != null && answer.response().status() == 304) {
                        know(new Known(before.me, before.etag, answer.token, askedAtMs));
                        done.accept(before.me, null);
                        return;
                    }
                    parsed(
                                    fields -> {
                                        Me me = Me.of(fields);
                                        if (answer != null)
                                            know(new Known(me, answer.response().etag(), answer.token, askedAtMs));
                                        return me;
                                    },
                                    done)
                            .accept(answer, error);
                });
    }

    /** An answer to an earlier request does not replace that to a later one. */
    private void know(Known next) {
        if (known == null || known.askedAtMs <= next.askedAtMs) known = next;
    }

    /** The variant of an experiment; {@code null} if the device does not participate. */
    int variant(
            long now,
            String experiment,
            boolean exposes,
            BiConsumer<@Nullable Variant, @Nullable NoroshiException> done) {
        BiConsumer<@Nullable Me, @Nullable NoroshiException> found = (me, error) -> {
            if (me == null) {
                done.accept(null, error);
                return;
            }
            Variant variant = me.experiments().get(experiment);
            if (variant != null
                    && exposes
                    && exposed.add(new Exposure(me.device(), me.user(), experiment, variant.variant()))) // U4
            exposures.add(List.of(experiment));
            done.accept(variant, null);
        };
        int[] number = new int[1];
        input(now, () -> {
            Known newest = known;
            if (newest != null && tokens.isCurrent(newest.token) && nowMs - newest.askedAtMs < VARIANTS_MS) // U5
            found.accept(newest.me, null);
            else number[0] = readMe(found);
        });
        return number[0];
    }

    /** U1: whether the application observes unread items. */
    void wantUnread(long now, boolean wants) {
        input(now, () -> {
            wantsUnread = wants;
            if (wants && state.isConnected()) refreshCounts();
        });
    }

    private void refreshCounts() {
        cancel(countsCall);
        countsCall = readCounts((answer, error) -> {
            if (error != null) fail(error);
        });
    }

    int readCounts(long now, BiConsumer<@Nullable ItemCounts, @Nullable NoroshiException> done) {
        int[] number = new int[1];
        input(now, () -> number[0] = readCounts(done));
        return number[0];
    }

    private int readCounts(BiConsumer<@Nullable ItemCounts, @Nullable NoroshiException> done) {
        int version = countsVersion;
        return request(
                Effect.Call.get("/v1/me/items/counts"),
                parsed(
                        fields -> {
                            ItemCounts newest = ItemCounts.of(fields);
                            if (version == countsVersion) update(newest); // U2
                            return newest;
                        },
                        done));
    }

    int changeItems(
            long now, Map<String, Object> change, BiConsumer<@Nullable ItemsChanged, @Nullable NoroshiException> done) {
        int version = countsVersion;
        return fetch(
                now,
                Effect.Call.send("PATCH", "/v1/me/items", change),
                fields -> {
                    ItemCounts newest = ItemCounts.of(fields);
                    if (version == countsVersion) update(newest); // U2
                    return new ItemsChanged(fields.number("changed", 0), newest);
                },
                done);
    }

    private void update(ItemCounts newest) {
        countsVersion++;
        if (newest.equals(counts)) return;
        counts = newest;
        effect(new Effect.UnreadChanged(newest));
    }

    @Nullable
    ItemCounts counts() {
        return counts;
    }
}
