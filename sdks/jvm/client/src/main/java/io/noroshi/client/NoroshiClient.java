package io.noroshi.client;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.LongConsumer;
import okhttp3.Call;
import okhttp3.Callback;
import okhttp3.Dispatcher;
import okhttp3.HttpUrl;
import okhttp3.Interceptor;
import okhttp3.MediaType;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;
import okhttp3.ResponseBody;
import okio.BufferedSink;
import org.jspecify.annotations.Nullable;

/**
 * A device's connection to Noroshi: receives messages, subscribes to topics, recovers what it missed, acknowledges, and
 * reads the inbox of the user. It reconnects until {@link #close}.
 *
 * <pre>{@code
 * NoroshiClient client = NoroshiClient.builder("https://push.example.com", request -> backend.pushToken()).build();
 * client.onMessage(message -> show(message.title(), message.body()));
 * client.connect();
 * }</pre>
 *
 * <p>All methods may be called by any thread and do not wait, except {@link #close}. Listeners run on the executor of
 * the client: messages one at a time, and other events one at a time.
 */
public final class NoroshiClient implements AutoCloseable {
    private static final Duration REQUEST_TIMEOUT = Duration.ofSeconds(30);
    private static final long CLOSE_WAIT_MS = 2_000;
    private static final int SLOW_DOWN_ABOVE = Inflow.QUEUE_MAX / 2;
    private static final long SLOW_DOWN_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
    private static final long ANSWER_BYTES_MAX = 32 << 20;
    /** Events that wait for their listeners; of more, the newest are kept. */
    private static final int EVENTS_MAX = 1_000;

    private static final MediaType JSON = Objects.requireNonNull(MediaType.parse("application/json"));

    /** Guards the machine and everything below, up to the listeners. */
    private final ReentrantLock lock = new ReentrantLock();

    private final Condition ended = lock.newCondition();
    private final Condition progress = lock.newCondition();
    private final Machine machine;
    private final Map<Integer, Link> links = new HashMap<>();
    private final Set<Integer> closing = new HashSet<>();
    private final Map<Integer, Call> calls = new HashMap<>();
    private final Map<Integer, FutureTask<?>> tokenRequests = new HashMap<>();
    private final Map<String, Subscription> subscriptions = new HashMap<>();
    private boolean isCarryingOut;
    private long settledCount;
    /** The listeners made no progress while messages waited for them. */
    private boolean isStuck;

    private @Nullable Long timerAtMs;
    private Runnable cancelTimer = () -> {};
    /** Counts what happened, for tests. */
    long inputs;
    /** Sees effects before they are carried out, for tests. */
    Consumer<Effect> observer = effect -> {};

    private final HttpUrl url;
    private final @Nullable String app;
    private final Clock clock;
    private final OkHttpClient http;
    private final OkHttpClient streams;
    private final TokenSource tokenSource;
    private final Executor executor;
    private final Serial messageSerial;
    private final Serial eventSerial;
    private final @Nullable ReportStorage storage;
    private final AtomicReference<@Nullable List<String>> toKeep = new AtomicReference<>();
    private final Serial storageSerial;

    private final Listeners<AsyncMessageListener> messages;
    private final Listeners<Consumer<State>> states = new Listeners<>(() -> {});
    private final Listeners<Consumer<Recovered>> recoveries = new Listeners<>(() -> {});
    private final Listeners<Consumer<Denied>> denials = new Listeners<>(() -> {});
    private final Listeners<Consumer<ItemsEvent>> items = new Listeners<>(() -> {});
    private final Listeners<Consumer<ItemCounts>> unread;
    private final Listeners<Consumer<NoroshiException>> errors = new Listeners<>(() -> {});

    private final Inbox inbox = new Inbox(this);
    private final PreferencesApi preferences = new PreferencesApi(this, "/v1/me/preferences");
    private final PreferencesApi userPreferences = new PreferencesApi(this, "/v1/me/user/preferences");

    private NoroshiClient(Builder builder) {
        url = builder.url;
        app = builder.app;
        clock = builder.clock;
        tokenSource = builder.tokenSource;
        executor = builder.executor == null ? defaultExecutor() : builder.executor;
        messageSerial = new Serial(executor, Inflow.QUEUE_MAX);
        eventSerial = new Serial(executor, EVENTS_MAX);
        storageSerial = new Serial(executor, EVENTS_MAX);
        storage = builder.storage;
        OkHttpClient base = builder.httpClient == null ? defaultHttpClient() : builder.httpClient;
        http = base.newBuilder()
                .callTimeout(REQUEST_TIMEOUT)
                .addNetworkInterceptor(NoroshiClient::leaveRepetitions)
                .build();
        // The machine has the timeouts of connections.
        streams = base.newBuilder()
                .callTimeout(Duration.ZERO)
                .readTimeout(Duration.ZERO)
                .pingInterval(Duration.ZERO)
                .retryOnConnectionFailure(false)
                .build();
        machine = new Machine(new Machine.Config(
                app,
                builder.acknowledge,
                builder.pingInterval.toMillis(),
                List.copyOf(builder.transports),
                keptReports(),
                storage != null,
                clock::random));
        messages = new Listeners<>(this::listenersChanged);
        unread = new Listeners<>(this::unreadListenersChanged);
    }

    /**
     * Configures a client.
     *
     * @param url the public address of the service, such as {@code https://push.example.com}
     * @param tokenSource gets tokens of the device
     */
    public static Builder builder(String url, TokenSource tokenSource) {
        return new Builder(url, tokenSource);
    }

    // The connection.

    /** Connects, and stays connected until {@link #close}. */
    public void connect() {
        input(machine::connect);
    }

    /**
     * Sends pending acknowledgements and ends the connection. Waits for the end, at most two seconds. Messages that no
     * listener has yet are dropped; stored ones arrive again. A listener that runs finishes its message, which is
     * acknowledged after the next log-in. Reports of opened messages stay in the storage. {@link #connect} may be
     * called again.
     */
    @Override
    public void close() {
        closeLater();
        lock.lock();
        try {
            long left = TimeUnit.MILLISECONDS.toNanos(CLOSE_WAIT_MS);
            while (left > 0 && !(closing.isEmpty() && calls.isEmpty())) left = ended.awaitNanos(left);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } finally {
            lock.unlock();
        }
    }

    /** Closes without a wait. */
    void closeLater() {
        input(machine::close);
    }

    /** The present state. */
    public State state() {
        lock.lock();
        try {
            return machine.state();
        } finally {
            lock.unlock();
        }
    }

    /** Says that the network works again: a waiting client tries at once, a connected one checks its connection. */
    public void networkReturned() {
        input(machine::networkReturned);
    }

    // Presence.

    /**
     * States the presence. {@code null}, the default, follows {@link #setHidden}.
     *
     * @param presence {@code ACTIVE} or {@code IDLE}
     */
    public void setPresence(@Nullable Presence presence) {
        if (presence == Presence.OFFLINE)
            throw new IllegalArgumentException("a device is offline without a connection");
        input(now -> machine.setPresence(now, presence));
    }

    /** Says whether the user sees the application. A device whose application was hidden for ten seconds is idle. */
    public void setHidden(boolean isHidden) {
        input(now -> machine.setHidden(now, isHidden));
    }

    // Topics.

    /** Subscribes. The same topic returns the same object until it is unsubscribed. */
    public Subscription subscribe(String topic) {
        return subscribe(topic, false);
    }

    /** Subscribes. After a reconnection the service sends what was missed, and {@link #onRecovered} follows. */
    public Subscription subscribeWithRecovery(String topic) {
        return subscribe(topic, true);
    }

    private Subscription subscribe(String topic, boolean recovers) {
        lock.lock();
        try {
            Subscription subscription =
                    subscriptions.computeIfAbsent(topic, name -> new Subscription(this, name, recovers));
            subscription.recovers = recovers;
            subscriptionChanged(subscription);
            return subscription;
        } finally {
            lock.unlock();
        }
    }

    void subscriptionChanged(Subscription subscription) {
        input(now -> {
            if (subscriptions.get(subscription.topic()) == subscription)
                machine.subscribe(now, subscription.topic(), subscription.recovers, !subscription.messages.isEmpty());
        });
    }

    void unsubscribe(Subscription subscription) {
        input(now -> {
            if (subscriptions.remove(subscription.topic(), subscription))
                machine.unsubscribe(now, subscription.topic());
        });
    }

    // Messages.

    /** Acknowledges messages, with {@link Acknowledge#MANUAL}. */
    public void ack(String... ids) {
        ack(List.of(ids));
    }

    /** Acknowledges messages, with {@link Acknowledge#MANUAL}. */
    public void ack(List<String> ids) {
        input(now -> machine.ack(now, ids));
    }

    /** Reports that the user opened messages. Waits for the network if there is none: at most 1,000 reports. */
    public void opened(String... ids) {
        opened(List.of(ids));
    }

    /** Reports that the user opened messages. Waits for the network if there is none: at most 1,000 reports. */
    public void opened(List<String> ids) {
        input(now -> machine.reportOpened(now, ids));
    }

    // Listeners.

    /** Adds a listener for all messages. */
    public Registration onMessage(MessageListener listener) {
        return messages.add(async(listener));
    }

    /** Adds a listener that needs no thread while it works. */
    public Registration onMessageAsync(AsyncMessageListener listener) {
        return messages.add(listener);
    }

    /** Adds a listener for changes of the state. */
    public Registration onState(Consumer<State> listener) {
        return states.add(listener);
    }

    /** Adds a listener for the end of recoveries. */
    public Registration onRecovered(Consumer<Recovered> listener) {
        return recoveries.add(listener);
    }

    /** Adds a listener for subscriptions that topic rules refused or ended. */
    public Registration onDenied(Consumer<Denied> listener) {
        return denials.add(listener);
    }

    /** Adds a listener for changes in the user's notification centre. */
    public Registration onItems(Consumer<ItemsEvent> listener) {
        return items.add(listener);
    }

    /** Adds a listener for the number of unread items. The client reads it after each log-in while there is one. */
    public Registration onUnread(Consumer<ItemCounts> listener) {
        return unread.add(listener);
    }

    /** Adds a listener for errors that no call returns. The client continues after them. */
    public Registration onError(Consumer<NoroshiException> listener) {
        return errors.add(listener);
    }

    static AsyncMessageListener async(MessageListener listener) {
        return message -> {
            listener.handle(message);
            return CompletableFuture.completedFuture(null);
        };
    }

    private void listenersChanged() {
        input(now -> machine.listen(now, !messages.isEmpty()));
    }

    private void unreadListenersChanged() {
        input(now -> machine.wantUnread(now, !unread.isEmpty()));
    }

    // The state of the device.

    /** The notification centre of the user. */
    public Inbox inbox() {
        return inbox;
    }

    /** The preferences of the device. */
    public PreferencesApi preferences() {
        return preferences;
    }

    /** The preferences of the user, for all devices. */
    public PreferencesApi userPreferences() {
        return userPreferences;
    }

    /** The state of the device. An unchanged answer costs no body. */
    public CompletableFuture<Me> me() {
        return call(Machine::me);
    }

    /**
     * The device's variant of an experiment, at most a minute old; empty if it does not participate. Reports the
     * exposure once per variant and user.
     */
    public CompletableFuture<Optional<Variant>> variant(String experiment) {
        return variant(experiment, true);
    }

    /**
     * The device's variant of an experiment, at most a minute old; empty if it does not participate.
     *
     * @param experiment its name
     * @param exposes whether to report the exposure
     */
    public CompletableFuture<Optional<Variant>> variant(String experiment, boolean exposes) {
        return call((machine, now, done) -> machine.variant(
                now,
                experiment,
                exposes,
                (variant, error) -> done.accept(error == null ? Optional.ofNullable(variant) : null, error)));
    }

    Optional<ItemCounts> counts() {
        lock.lock();
        try {
            return Optional.ofNullable(machine.counts());
        } finally {
            lock.unlock();
        }
    }

    /** Begins a request and returns its number. */
    interface Begin<T> {
        int begin(Machine machine, long now, BiConsumer<@Nullable T, @Nullable NoroshiException> done);
    }

    <T> CompletableFuture<T> call(Begin<T> begin) {
        CompletableFuture<T> future = new CompletableFuture<>();
        int[] number = new int[1];
        input(now -> number[0] = begin.begin(machine, now, (value, error) -> {
            // On another thread: what depends on the future does not run under the lock.
            execute(() -> {
                if (error != null) future.completeExceptionally(error);
                else future.complete(value);
            });
        }));
        future.whenComplete((value, error) -> {
            if (error instanceof CancellationException) input(now -> cancel(number[0]));
        });
        return future;
    }

    private void cancel(int number) {
        machine.cancel(number);
        Call call = calls.get(number);
        if (call != null) call.cancel();
    }

    // The machine.

    private void input(LongConsumer handle) {
        lock.lock();
        try {
            inputs++;
            handle.accept(clock.nowMs());
            if (isCarryingOut) return;
            isCarryingOut = true;
            try {
                for (List<Effect> effects; !(effects = machine.effects()).isEmpty(); ) effects.forEach(this::carryOut);
            } finally {
                isCarryingOut = false;
            }
            schedule();
        } finally {
            lock.unlock();
        }
    }

    private void schedule() {
        Long next = machine.nextTimeoutMs();
        if (Objects.equals(next, timerAtMs)) return;
        cancelTimer.run();
        timerAtMs = next;
        cancelTimer = next == null
                ? () -> {}
                : clock.schedule(
                        Math.max(0, next - clock.nowMs()),
                        () -> input(now -> {
                            timerAtMs = null;
                            machine.advance(now);
                        }));
    }

    private void carryOut(Effect effect) {
        observer.accept(effect);
        if (effect instanceof Effect.Dial dial) dial(dial);
        else if (effect instanceof Effect.Send send) send(send);
        else if (effect instanceof Effect.Hangup hangup) hangUp(hangup.attempt());
        else if (effect instanceof Effect.AskToken ask) askToken(ask);
        else if (effect instanceof Effect.CancelToken cancel) cancelToken(cancel.number());
        else if (effect instanceof Effect.Request request) request(request);
        else if (effect instanceof Effect.Pass pass) pass(pass.message());
        else if (effect instanceof Effect.Keep keep) keep(keep.ids());
        else
            try {
                eventSerial.execute(() -> report(effect));
            } catch (RejectedExecutionException shutDown) {
                // The application has shut its executor down: it wants no more events.
            }
    }

    private void report(Effect effect) {
        if (effect instanceof Effect.StateChanged changed) Listeners.call(states, changed.state());
        else if (effect instanceof Effect.ItemsChangedBy changed) Listeners.call(items, changed.event());
        else if (effect instanceof Effect.UnreadChanged changed) Listeners.call(unread, changed.counts());
        else if (effect instanceof Effect.Failed failed) Listeners.call(errors, failed.error());
        else if (effect instanceof Effect.RecoveryEnded ended) {
            Subscription subscription = subscription(ended.recovered().topic());
            if (subscription != null) Listeners.call(subscription.recovered, ended.recovered());
            Listeners.call(recoveries, ended.recovered());
        } else if (effect instanceof Effect.SubscriptionDenied denied) {
            Subscription subscription = subscription(denied.denied().topic());
            if (subscription != null) {
                lock.lock();
                try {
                    subscriptions.remove(subscription.topic(), subscription);
                } finally {
                    lock.unlock();
                }
                Listeners.call(subscription.denied, denied.denied());
            }
            Listeners.call(denials, denied.denied());
        }
    }

    private @Nullable Subscription subscription(String topic) {
        lock.lock();
        try {
            return subscriptions.get(topic);
        } finally {
            lock.unlock();
        }
    }

    private void execute(Runnable task) {
        try {
            executor.execute(task);
        } catch (RejectedExecutionException shutDown) {
            task.run();
        }
    }

    private void dial(Effect.Dial dial) {
        int attempt = dial.attempt();
        Link.Events events = new Link.Events() {
            @Override
            public void opened() {
                input(now -> machine.opened(now, attempt));
            }

            @Override
            public void heard() {
                input(now -> machine.heard(now, attempt));
            }

            @Override
            public void frame(String text) {
                input(now -> machine.frame(now, attempt, text));
                slowDown();
            }

            @Override
            public void binary() {
                input(now -> machine.binary(now, attempt));
            }

            @Override
            public void ended(Machine.End end) {
                input(now -> machine.ended(now, attempt, end));
            }

            @Override
            public void gone() {
                lock.lock();
                try {
                    closing.remove(attempt);
                    ended.signalAll();
                } finally {
                    lock.unlock();
                }
            }
        };
        links.put(
                attempt,
                dial.transport() == Transport.WEBSOCKET
                        ? new Link.Socket(streams, address("/v1/connect", Map.of()), clock, events)
                        : new Link.Stream(
                                streams,
                                address(
                                        "/v1/events",
                                        dial.topics().isEmpty()
                                                ? Map.of()
                                                : Map.of("topics", String.join(",", dial.topics()))),
                                Objects.requireNonNull(dial.token()),
                                dial.lastEventId(),
                                clock,
                                events));
    }

    private void send(Effect.Send send) {
        Link link = links.get(send.attempt());
        if (link != null) link.send(send.frame());
    }

    private void hangUp(int attempt) {
        Link link = links.remove(attempt);
        if (link == null) return;
        closing.add(attempt);
        link.close();
    }

    private void askToken(Effect.AskToken ask) {
        int number = ask.number();
        FutureTask<?> task = new FutureTask<>(
                () -> {
                    try {
                        String token = tokenSource.token(new TokenRequest(ask.reason(), ask.previous()));
                        if (token != null && !token.chars().allMatch(one -> one > ' ' && one < 127))
                            throw new IllegalArgumentException("the token must be visible ASCII characters");
                        tokenArrived(number, token, token == null, null);
                    } catch (Throwable cause) {
                        tokenArrived(number, null, false, cause);
                    }
                },
                null);
        tokenRequests.put(number, task);
        try {
            executor.execute(task);
        } catch (RejectedExecutionException shutDown) {
            tokenArrived(number, null, false, shutDown);
        }
    }

    private void tokenArrived(int number, @Nullable String token, boolean isSignedOut, @Nullable Throwable cause) {
        input(now -> {
            tokenRequests.remove(number);
            machine.tokenArrived(now, number, token, isSignedOut, cause);
        });
    }

    private void cancelToken(int number) {
        FutureTask<?> task = tokenRequests.remove(number);
        if (task != null) task.cancel(true);
    }

    private void pass(Message message) {
        try {
            messageSerial.execute(() -> {
                List<AsyncMessageListener> all = new ArrayList<>();
                Subscription subscription = message.topic() == null ? null : subscription(message.topic());
                if (subscription != null) all.addAll(subscription.messages.all());
                all.addAll(messages.all());
                if (all.isEmpty()) {
                    settled(false, null);
                    return;
                }
                Listeners.handle(all, message).whenComplete((nothing, error) -> {
                    Throwable cause =
                            error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
                    settled(true, cause);
                });
            });
        } catch (RejectedExecutionException shutDown) {
            settled(true, shutDown);
        }
    }

    private void settled(boolean isHandled, @Nullable Throwable cause) {
        input(now -> {
            settledCount++;
            isStuck = false;
            progress.signalAll();
            machine.settled(now, isHandled, cause);
        });
    }

    /** Reads no more for now if listeners are slower than the network, as long as they make progress. */
    private void slowDown() {
        lock.lock();
        try {
            while (machine.waitingMessages() > SLOW_DOWN_ABOVE && !isStuck) {
                long before = settledCount;
                long left = SLOW_DOWN_NANOS;
                while (left > 0 && before == settledCount) left = progress.awaitNanos(left);
                isStuck = before == settledCount;
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } finally {
            lock.unlock();
        }
    }

    // Requests.

    private HttpUrl address(String path, Map<String, String> query) {
        HttpUrl.Builder address = url.newBuilder().addPathSegments(path.substring(1));
        query.forEach(address::addQueryParameter);
        if (app != null) address.addQueryParameter("app", app);
        return address.build();
    }

    private void request(Effect.Request effect) {
        Effect.Call wanted = effect.call();
        String body = wanted.body();
        Request.Builder request = new Request.Builder()
                .url(address(wanted.path(), wanted.query()))
                .method(wanted.method(), wanted.method().equals("GET") ? null : sentOnce(body))
                .header("Authorization", "Bearer " + effect.token());
        if (wanted.ifNoneMatch() != null) request.header("If-None-Match", wanted.ifNoneMatch());
        Call call = http.newCall(request.build());
        int number = effect.number();
        String name = wanted.method() + " " + wanted.path();
        calls.put(number, call);
        call.enqueue(new Callback() {
            @Override
            public void onFailure(Call call, IOException cause) {
                answered(number, Effect.Response.failed(failure(name, cause)));
            }

            @Override
            public void onResponse(Call call, Response response) {
                answered(number, read(name, response));
            }
        });
    }

    /**
     * OkHttp repeats other bodies by itself after a broken connection; here the machine decides what is repeated (O3,
     * U6).
     */
    private static RequestBody sentOnce(@Nullable String body) {
        byte[] bytes = body == null ? new byte[0] : body.getBytes(StandardCharsets.UTF_8);
        return new RequestBody() {
            @Override
            public @Nullable MediaType contentType() {
                return body == null ? null : JSON;
            }

            @Override
            public long contentLength() {
                return bytes.length;
            }

            @Override
            public boolean isOneShot() {
                return true;
            }

            @Override
            public void writeTo(BufferedSink sink) throws IOException {
                sink.write(bytes);
            }
        };
    }

    /**
     * Nor does OkHttp repeat a read at once after 408 and after 503 with {@code Retry-After: 0}: a date keeps it from
     * that.
     */
    private static Response leaveRepetitions(Interceptor.Chain chain) throws IOException {
        Response response = chain.proceed(chain.request());
        String wait = response.header("Retry-After", response.code() == 408 ? "0" : "");
        return (response.code() == 408 || response.code() == 503)
                        && Objects.requireNonNull(wait).matches("0+")
                ? response.newBuilder()
                        .header("Retry-After", "Thu, 01 Jan 1970 00:00:00 GMT")
                        .build()
                : response;
    }

    private void answered(int number, Effect.Response response) {
        input(now -> {
            calls.remove(number);
            ended.signalAll();
            machine.answered(now, number, response);
        });
    }

    private Effect.Response read(String name, Response response) {
        try (ResponseBody body = Objects.requireNonNull(response.body())) {
            if (body.source().request(ANSWER_BYTES_MAX + 1))
                return Effect.Response.failed(new NoroshiException(
                        "network", name + ": the answer has more than " + ANSWER_BYTES_MAX + " bytes"));
            return new Effect.Response(
                    null,
                    response.code(),
                    response.header("ETag"),
                    response.header("X-Request-Id"),
                    Backoff.retryAfterMs(response.header("Retry-After"), clock.nowMs()),
                    body.string());
        } catch (IOException cause) {
            return Effect.Response.failed(failure(name, cause));
        }
    }

    private static NoroshiException failure(String name, IOException cause) {
        return cause instanceof InterruptedIOException
                ? new NoroshiException("timeout", name + ": no answer after 30 s", cause)
                : new NoroshiException("network", name + ": " + cause, cause);
    }

    // Reports of opened messages.

    private List<String> keptReports() {
        if (storage == null) return List.of();
        try {
            String kept = storage.load();
            return kept == null
                    ? List.of()
                    : Fields.parse("{\"ids\":" + kept + "}").texts("ids");
        } catch (IOException | Json.SyntaxError lost) {
            return List.of(); // not ours, or cut off
        }
    }

    private void keep(List<String> ids) {
        ReportStorage storage = this.storage;
        if (storage == null) return;
        toKeep.set(ids);
        try {
            storageSerial.execute(() -> {
                List<String> newest = toKeep.getAndSet(null);
                if (newest == null) return;
                try {
                    storage.save(newest.isEmpty() ? null : Json.write(newest));
                } catch (IOException | RuntimeException cause) {
                    Listeners.call(
                            errors,
                            new NoroshiException(
                                    CloseReasons.QUEUE_FULL, "the storage refused reports: " + cause, cause));
                }
            });
        } catch (RejectedExecutionException shutDown) {
            // The reports stay in memory.
        }
    }

    /** Whether no listener runs and no token is requested, for tests. */
    boolean isIdle(boolean hasPendingToken) {
        lock.lock();
        try {
            return messageSerial.isIdle() && eventSerial.isIdle() && (tokenRequests.isEmpty() || hasPendingToken);
        } finally {
            lock.unlock();
        }
    }

    private static Executor defaultExecutor() {
        return new ThreadPoolExecutor(
                0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(), daemons("noroshi-client"));
    }

    private static OkHttpClient defaultHttpClient() {
        Dispatcher dispatcher = new Dispatcher(Executors.newCachedThreadPool(daemons("noroshi-http")));
        dispatcher.setMaxRequestsPerHost(64);
        return new OkHttpClient.Builder().dispatcher(dispatcher).build();
    }

    /** Threads that do not keep the process alive. */
    private static ThreadFactory daemons(String name) {
        return task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        };
    }

    /** Configures a {@link NoroshiClient}. */
    public static final class Builder {
        private final HttpUrl url;
        private final TokenSource tokenSource;
        private @Nullable String app;
        private Acknowledge acknowledge = Acknowledge.HANDLED;
        private Duration pingInterval = Duration.ofSeconds(60);
        private List<Transport> transports = List.of(Transport.WEBSOCKET, Transport.SSE);
        private @Nullable ReportStorage storage;
        private @Nullable Executor executor;
        private @Nullable OkHttpClient httpClient;
        private Clock clock = new Clock.System();

        private Builder(String url, TokenSource tokenSource) {
            this.url = HttpUrl.get(url.replaceAll("/+$", ""));
            this.tokenSource = tokenSource;
        }

        /** The name of the app, if its JWTs do not name it. */
        public Builder app(@Nullable String app) {
            this.app = app;
            return this;
        }

        /** When the client acknowledges stored messages. Default: after they were handled. */
        public Builder acknowledge(Acknowledge acknowledge) {
            this.acknowledge = acknowledge;
            return this;
        }

        /**
         * After which silence the client checks the connection. Default: a minute; never more than the interval of the
         * service.
         */
        public Builder pingInterval(Duration pingInterval) {
            if (pingInterval.toMillis() <= 0) throw new IllegalArgumentException("pingInterval must be positive");
            this.pingInterval = pingInterval;
            return this;
        }

        /**
         * Which transports to use, in this order. Default: WebSocket, and server-sent events where a network blocks it.
         */
        public Builder transports(Transport... transports) {
            if (transports.length == 0) throw new IllegalArgumentException("transports must not be empty");
            this.transports = List.copyOf(new LinkedHashSet<>(List.of(transports)));
            return this;
        }

        /** Keeps reports of opened messages until the service has them. */
        public Builder storage(@Nullable ReportStorage storage) {
            this.storage = storage;
            return this;
        }

        /**
         * Runs listeners and the token source. Default: threads that do not keep the process alive. The token source
         * and a listener may wait: use an executor with several threads, or listeners that do not wait.
         */
        public Builder executor(@Nullable Executor executor) {
            this.executor = executor;
            return this;
        }

        /** Carries the connections, for example with a proxy or certificates. The client sets timeouts of its own. */
        public Builder httpClient(@Nullable OkHttpClient httpClient) {
            this.httpClient = httpClient;
            return this;
        }

        Builder clock(Clock clock) {
            this.clock = clock;
            return this;
        }

        public NoroshiClient build() {
            return new NoroshiClient(this);
        }
    }
}
