package io.noroshi.server;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.channels.UnresolvedAddressException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** Requests with timeouts, retries and typed answers. */
final class Http {
    static final int ANSWER_BYTES_MAX = 64 << 20;
    /** Of transient statuses, the ones after which the service has not done it. */
    private static final Set<Integer> NOTHING_DONE = Set.of(408, 425, 429, 503);

    private static final Set<String> SAFE_METHODS = Set.of("GET", "PUT", "DELETE");

    /** What all requests of a client share. */
    record Config(
            String url,
            Supplier<String> apiKey,
            Duration timeout,
            Duration deadline,
            int attempts,
            @Nullable Supplier<@Nullable TraceContext> trace,
            @Nullable Consumer<Attempt> observer,
            HttpClient client,
            Clock clock) {}

    final Config config;
    private final RequestOptions options;

    Http(Config config, RequestOptions options) {
        this.config = config;
        this.options = options;
    }

    Http with(RequestOptions options) {
        return new Http(config, options);
    }

    int attempts() {
        return options.attempts() == null ? config.attempts : options.attempts();
    }

    @Nullable
    String idempotencyKey() {
        return options.idempotencyKey();
    }

    Call call(String method, String path) {
        return new Call(method, path);
    }

    /** The result of a future, on the thread of the caller. */
    static <T> T await(CompletableFuture<T> future) {
        try {
            return future.get();
        } catch (InterruptedException interrupted) {
            future.cancel(true);
            Thread.currentThread().interrupt();
            throw new NoroshiException("interrupted", "the thread was interrupted", interrupted);
        } catch (ExecutionException failed) {
            Throwable cause = failed.getCause();
            // Its trace is that of a thread of the HTTP client: this one names the caller.
            if (cause != null) cause.addSuppressed(new Caller());
            if (cause instanceof RuntimeException exception) throw exception;
            if (cause instanceof Error error) throw error;
            throw new NoroshiException("network", String.valueOf(cause), cause);
        }
    }

    private static final class Caller extends Throwable {
        private static final long serialVersionUID = 1;

        Caller() {
            super("called by");
        }

        @Override
        public String toString() {
            return "called by";
        }
    }

    /** A request that is not sent yet. */
    final class Call {
        private final String method;
        private final String path;
        private final Map<String, String> values = new LinkedHashMap<>();
        private final StringBuilder query = new StringBuilder();
        private byte @Nullable [] body;
        private String contentType = "application/json";
        private boolean isSafe;
        private @Nullable String idempotencyKey;

        private Call(String method, String path) {
            this.method = method;
            this.path = path;
            isSafe = SAFE_METHODS.contains(method);
        }

        Call path(String name, String value) {
            // A dot segment would name another path.
            if (value.isEmpty() || value.equals(".") || value.equals(".."))
                throw new IllegalArgumentException(name + " must be neither empty nor a dot segment");
            values.put(name, value);
            return this;
        }

        Call query(String name, @Nullable Object value) {
            if (value == null) return this;
            // The name of an enumeration's value in the API.
            Object text = value instanceof Enum<?> ? Json.MAPPER.convertValue(value, String.class) : value;
            query.append(query.length() == 0 ? '?' : '&')
                    .append(name)
                    .append('=')
                    .append(encode(String.valueOf(text)));
            return this;
        }

        Call query(Map<String, @Nullable Object> parameters) {
            parameters.forEach(this::query);
            return this;
        }

        Call body(Object value) {
            try {
                body = Json.MAPPER.writeValueAsBytes(value);
            } catch (JsonProcessingException cause) {
                throw new IllegalArgumentException("the request is not JSON: " + cause.getMessage(), cause);
            }
            return this;
        }

        Call lines(byte[] lines) {
            body = lines;
            contentType = "application/x-ndjson";
            return this;
        }

        /** Repeating it has no other effect than sending it once. */
        Call safe() {
            isSafe = true;
            return this;
        }

        Call unsafe() {
            isSafe = false;
            return this;
        }

        Call idempotent() {
            return idempotent(
                    options.idempotencyKey() == null ? UUID.randomUUID().toString() : options.idempotencyKey());
        }

        Call idempotent(String key) {
            idempotencyKey = key;
            return safe();
        }

        CompletableFuture<@Nullable Void> send() {
            return new Exchange<@Nullable Void>(this, answer -> null).start();
        }

        <T> CompletableFuture<T> send(Class<T> type) {
            return send(bytes -> {
                T value = Json.MAPPER.readValue(bytes, type);
                if (value == null) throw new IOException("the answer is null");
                return value;
            });
        }

        <T> CompletableFuture<T> send(Read<T> read) {
            return new Exchange<>(this, answer -> {
                        try {
                            return read.read(answer.body());
                        } catch (IOException cause) {
                            throw new NoroshiException(
                                    "bad_answer",
                                    "the answer is not what the API promises: " + cause.getMessage(),
                                    cause);
                        }
                    })
                    .start();
        }

        private URI uri() {
            StringBuilder filled = new StringBuilder(config.url);
            for (String segment : path.substring(1).split("/")) {
                filled.append('/');
                if (segment.startsWith("{"))
                    filled.append(encode(values.get(segment.substring(1, segment.length() - 1))));
                else filled.append(segment);
            }
            return URI.create(filled.append(query).toString());
        }
    }

    interface Read<T> {
        T read(byte[] body) throws IOException;
    }

    private static String encode(@Nullable String text) {
        return URLEncoder.encode(String.valueOf(text), StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** The attempts at one request. */
    private final class Exchange<T> {
        private final Call call;
        private final Function<HttpResponse<byte[]>, T> read;
        private final CompletableFuture<T> result = new CompletableFuture<>();
        private final Clock clock = config.clock;
        private final long endsAtNanos;
        private final URI uri;
        private String requestId;
        private int attempt;
        /** An earlier attempt may have had its effect. */
        private boolean isUnclear;

        private volatile @Nullable CompletableFuture<?> sent;
        private volatile Runnable cancelTimer = () -> {};

        Exchange(Call call, Function<HttpResponse<byte[]>, T> read) {
            this.call = call;
            this.read = read;
            uri = call.uri();
            Duration deadline = options.deadline() == null ? config.deadline : options.deadline();
            endsAtNanos = clock.nanoTime() + deadline.toNanos();
            requestId = options.requestId() == null ? UUID.randomUUID().toString() : options.requestId();
        }

        CompletableFuture<T> start() {
            result.whenComplete((value, error) -> {
                if (!(error instanceof CancellationException)) return;
                cancelTimer.run();
                CompletableFuture<?> current = sent;
                if (current != null) current.cancel(true);
            });
            attempt();
            return result;
        }

        private void attempt() {
            if (result.isDone()) return;
            attempt++;
            long began = clock.nanoTime();
            Duration timeout = options.timeout() == null ? config.timeout : options.timeout();
            Duration left = Duration.ofNanos(Math.max(1, endsAtNanos - began));
            Duration most = timeout.compareTo(left) < 0 ? timeout : left;
            boolean[] isLate = new boolean[1];
            CompletableFuture<HttpResponse<byte[]>> exchange;
            try {
                exchange = config.client.sendAsync(request(), answer -> new Bounded(ANSWER_BYTES_MAX));
            } catch (RuntimeException invalid) {
                result.completeExceptionally(invalid);
                return;
            }
            sent = exchange;
            Runnable stopTimer = clock.schedule(most, () -> {
                isLate[0] = true;
                exchange.cancel(true);
            });
            if (result.isCancelled()) exchange.cancel(true);
            exchange.whenComplete((answer, error) -> {
                stopTimer.run();
                Duration took = Duration.ofNanos(clock.nanoTime() - began);
                try {
                    if (answer == null) failed(failure(unwrap(error), isLate[0], most), null, took);
                    else answered(answer, took);
                } catch (RuntimeException | Error unexpected) {
                    result.completeExceptionally(unexpected);
                }
            });
        }

        private HttpRequest request() {
            String key = config.apiKey.get();
            // The JDK's message about an invalid header contains the value.
            if (!key.matches("[!-~]+"))
                throw new IllegalArgumentException("the API key must be visible ASCII characters");
            HttpRequest.Builder request = HttpRequest.newBuilder(uri)
                    .method(
                            call.method,
                            call.body == null
                                    ? HttpRequest.BodyPublishers.noBody()
                                    : HttpRequest.BodyPublishers.ofByteArray(call.body))
                    .header("Authorization", "Bearer " + key)
                    .header("Accept", call.contentType + ", application/problem+json")
                    .header("X-Request-Id", requestId);
            if (call.body != null) request.header("Content-Type", call.contentType);
            if (call.idempotencyKey != null) request.header("Idempotency-Key", call.idempotencyKey);
            TraceContext trace = options.trace();
            if (trace == null && config.trace != null) trace = config.trace.get();
            if (trace != null && trace.isValid()) {
                request.header("traceparent", trace.traceparent());
                if (trace.hasState()) request.header("tracestate", trace.tracestate());
            }
            return request.build();
        }

        private void answered(HttpResponse<byte[]> answer, Duration took) {
            requestId = answer.headers().firstValue("X-Request-Id").orElse(requestId);
            if (answer.statusCode() / 100 != 2) {
                failed(problem(answer), answer.statusCode(), took);
                return;
            }
            T value;
            try {
                value = read.apply(answer);
            } catch (NoroshiException error) {
                failed(error, answer.statusCode(), took);
                return;
            }
            report(answer.statusCode(), null, took, null);
            result.complete(value);
        }

        private ProblemException problem(HttpResponse<byte[]> answer) {
            JsonNode problem = MissingNode.getInstance();
            try {
                problem = Json.MAPPER.readTree(answer.body());
            } catch (IOException pageOfAProxy) {
                // It has no code.
            }
            return Http.problem(
                    answer.statusCode(),
                    problem,
                    Backoff.retryAfter(
                            answer.headers().firstValue("Retry-After").orElse(null), clock.now()));
        }

        private void failed(NoroshiException error, @Nullable Integer status, Duration took) {
            error.of(requestId, attempt);
            if (call.method.equals("DELETE") && isUnclear && error.code().equals("not_found")) {
                // An earlier attempt deleted it.
                report(status, error, took, null);
                result.complete(null);
                return;
            }
            boolean mayRepeat = call.isSafe ? error.isTransient() : isUndone(error);
            Duration delay = Backoff.delay(error, attempt, clock.random());
            boolean isInTime = clock.nanoTime() + delay.toNanos() < endsAtNanos;
            if (attempt >= attempts() || !mayRepeat || !isInTime) {
                report(status, error, took, null);
                result.completeExceptionally(error);
                return;
            }
            isUnclear |= !isUndone(error);
            report(status, error, took, delay);
            cancelTimer = clock.schedule(delay, this::attempt);
            if (result.isCancelled()) cancelTimer.run();
        }

        private void report(
                @Nullable Integer status, @Nullable NoroshiException error, Duration took, @Nullable Duration retryIn) {
            if (config.observer == null) return;
            try {
                config.observer.accept(
                        new Attempt(call.method, call.path, requestId, attempt, took, status, error, retryIn));
            } catch (RuntimeException ignored) {
                // An observer must not change the result of a request.
            }
        }

        private NoroshiException failure(Throwable cause, boolean isLate, Duration timeout) {
            String name = call.method + " " + call.path;
            if (isLate)
                return new NoroshiException("timeout", name + ": no answer after " + timeout.toMillis() + " ms", cause);
            return new NoroshiException("network", name + ": " + cause, cause);
        }
    }

    private static Throwable unwrap(Throwable error) {
        return error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
    }

    /** The service has certainly not done it. */
    private static boolean isUndone(NoroshiException error) {
        if (error instanceof ProblemException problem)
            // A cell may have done it without an answer to its front.
            return NOTHING_DONE.contains(problem.status()) && !problem.code().equals("cell_unavailable");
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause())
            if (cause instanceof ConnectException
                    || cause instanceof HttpConnectTimeoutException
                    || cause instanceof UnresolvedAddressException) return true;
        return false;
    }

    static ProblemException problem(int status, JsonNode problem, @Nullable Duration retryAfter) {
        String title = problem.path("title").asText("status " + status);
        JsonNode field = problem.path("field");
        return new ProblemException(
                status,
                problem.path("code").asText("http_" + status),
                title,
                problem.path("detail").asText(title),
                field.isTextual() ? field.asText() : null,
                retryAfter);
    }
}
