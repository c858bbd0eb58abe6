package io.noroshi.server;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.MappingIterator;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.jspecify.annotations.Nullable;

/**
 * Lines that are sent while their results are read: one bounded request after the other, and a result for each line, in
 * order. At most one request is in memory.
 *
 * <pre>{@code
 * for (LineResult<Notification, Receipt> result : noroshi.publishBatch(notifications))
 *     if (!result.isOk()) log(result.line(), result.error());
 * }</pre>
 *
 * <p>The service accepts each line or rejects it with an error of its own. The library sends lines again that the
 * service rejects for now. If a request fails as a whole, the iteration throws: lines without a result may have been
 * accepted. Each iteration sends the lines again; those of notifications have the same idempotency key, so that the
 * service accepts them once.
 *
 * @param <L> the type of the lines
 * @param <V> the type of the values
 */
public final class Batch<L, V> implements Iterable<LineResult<L, V>> {
    private static final int LINES_MAX = 10_000;

    /** Sends the lines of a request; {@code key} is its idempotency key. */
    interface Send {
        Http.Call send(Http http, byte[] lines, String key);
    }

    private record Entry<L>(L line, byte @Nullable [] bytes, @Nullable NoroshiException error) {}

    private record Answer<V>(@Nullable V value, @Nullable NoroshiException error) {}

    private final Http http;
    private final Iterable<? extends L> lines;
    private final Class<V> type;
    private final boolean isIdempotent;
    private final Send send;
    private final int linesPerRequest;
    private final int bytesPerRequest;
    private final String key;

    Batch(Http http, Iterable<? extends L> lines, Class<V> type, boolean isIdempotent, Send send) {
        this(http, lines, type, isIdempotent, send, 1_000, 4 << 20, key(http));
    }

    private Batch(
            Http http,
            Iterable<? extends L> lines,
            Class<V> type,
            boolean isIdempotent,
            Send send,
            int linesPerRequest,
            int bytesPerRequest,
            String key) {
        this.http = http;
        this.lines = lines;
        this.type = type;
        this.isIdempotent = isIdempotent;
        this.send = send;
        this.linesPerRequest = linesPerRequest;
        this.bytesPerRequest = bytesPerRequest;
        this.key = key;
    }

    private static String key(Http http) {
        String key = http.idempotencyKey();
        if (key == null) return UUID.randomUUID().toString();
        if (key.length() > 240)
            throw new IllegalArgumentException("idempotencyKey of a batch must have at most 240 characters");
        return key;
    }

    /** The same lines, with as many in a request at most: 1 to 10,000. Default: 1,000. */
    public Batch<L, V> linesPerRequest(int max) {
        if (max < 1 || max > LINES_MAX) throw new IllegalArgumentException("linesPerRequest must be 1 to " + LINES_MAX);
        return new Batch<>(http, lines, type, isIdempotent, send, max, bytesPerRequest, key);
    }

    /** The same lines, with as many bytes in a request at most, unless a single line has more. Default: 4 MiB. */
    public Batch<L, V> bytesPerRequest(int max) {
        if (max < 1) throw new IllegalArgumentException("bytesPerRequest must be at least 1");
        return new Batch<>(http, lines, type, isIdempotent, send, linesPerRequest, max, key);
    }

    /** Sends the lines; each result is available when the answer to its request has arrived. */
    @Override
    public Iterator<LineResult<L, V>> iterator() {
        Groups groups = new Groups();
        return new Iterator<>() {
            private Iterator<LineResult<L, V>> results = Collections.emptyIterator();

            @Override
            public boolean hasNext() {
                while (!results.hasNext() && groups.hasNext())
                    results = Http.await(groups.sendNext()).iterator();
                return results.hasNext();
            }

            @Override
            public LineResult<L, V> next() {
                if (!hasNext()) throw new NoSuchElementException();
                return results.next();
            }
        };
    }

    /** As {@link #iterator}. */
    public Stream<LineResult<L, V>> stream() {
        return StreamSupport.stream(spliterator(), false);
    }

    /**
     * Sends all lines, without a wait. The future completes with the number of lines, after the consumer got the last
     * result.
     */
    public CompletableFuture<Long> sendAsync(Consumer<? super LineResult<L, V>> consumer) {
        return sendNext(new Groups(), consumer);
    }

    private CompletableFuture<Long> sendNext(Groups groups, Consumer<? super LineResult<L, V>> consumer) {
        if (!groups.hasNext()) return CompletableFuture.completedFuture(groups.index);
        return groups.sendNext().thenComposeAsync(results -> {
            results.forEach(consumer);
            return sendNext(groups, consumer);
        });
    }

    /** Groups of lines, each as large as a request may be. */
    private final class Groups {
        private final Iterator<? extends L> source = lines.iterator();
        private @Nullable Entry<L> next;
        private long index;
        private int requests;

        boolean hasNext() {
            return next != null || source.hasNext();
        }

        CompletableFuture<List<LineResult<L, V>>> sendNext() {
            List<Entry<L>> entries = new ArrayList<>();
            List<byte[]> sent = new ArrayList<>();
            int bytes = 0;
            while (entries.size() < linesPerRequest && hasNext()) {
                Entry<L> entry = next == null ? encode(source.next()) : next;
                next = null;
                int size = entry.bytes == null ? 0 : entry.bytes.length;
                if (!entries.isEmpty() && bytes + size > bytesPerRequest) {
                    next = entry;
                    break;
                }
                entries.add(entry);
                if (entry.bytes != null) sent.add(entry.bytes);
                bytes += size;
            }
            CompletableFuture<List<Answer<V>>> answers = sent.isEmpty()
                    ? CompletableFuture.completedFuture(List.of())
                    : exchange(sent, key + "-" + requests++);
            return answers.thenApply(all -> {
                List<LineResult<L, V>> results = new ArrayList<>(entries.size());
                Iterator<Answer<V>> answer = all.iterator();
                for (Entry<L> entry : entries) {
                    Answer<V> one = entry.error == null ? answer.next() : new Answer<>(null, entry.error);
                    results.add(new LineResult<>(index++, entry.line, one.value, one.error));
                }
                return results;
            });
        }
    }

    private Entry<L> encode(L line) {
        try {
            byte[] json = Json.MAPPER.writeValueAsBytes(line);
            byte[] bytes = Arrays.copyOf(json, json.length + 1);
            bytes[json.length] = '\n';
            return new Entry<>(line, bytes, null);
        } catch (JsonProcessingException cause) {
            return new Entry<>(
                    line,
                    null,
                    new NoroshiException("invalid_line", "the line is not JSON: " + cause.getMessage(), cause));
        }
    }

    /** One request, repeated while the service rejects lines for now. */
    private CompletableFuture<List<Answer<V>>> exchange(List<byte[]> sent, String requestKey) {
        return request(sent, requestKey).thenCompose(answers -> repeat(sent, requestKey, answers, 1));
    }

    private CompletableFuture<List<Answer<V>>> repeat(
            List<byte[]> sent, String requestKey, List<Answer<V>> answers, int attempt) {
        List<Integer> rejected = new ArrayList<>();
        for (int n = 0; n < answers.size(); n++) {
            NoroshiException error = answers.get(n).error;
            if (error != null && error.isTransient()) rejected.add(n);
        }
        if (rejected.isEmpty() || attempt >= http.attempts()) return CompletableFuture.completedFuture(answers);
        NoroshiException first = answers.get(rejected.get(0)).error;
        CompletableFuture<@Nullable Void> wait = new CompletableFuture<>();
        Duration delay = first == null
                ? Duration.ZERO
                : Backoff.delay(first, attempt, http.config.clock().random());
        http.config.clock().schedule(delay, () -> wait.complete(null));
        // A line keeps its number, which is a part of its idempotency key. Other lines may not be sent twice.
        List<byte[]> again =
                isIdempotent ? sent : rejected.stream().map(sent::get).toList();
        return wait.thenCompose(nothing -> request(again, requestKey)).thenCompose(repeated -> {
            List<Answer<V>> merged = new ArrayList<>(answers);
            for (int n = 0; n < rejected.size(); n++)
                merged.set(rejected.get(n), repeated.get(isIdempotent ? rejected.get(n) : n));
            return repeat(sent, requestKey, merged, attempt + 1);
        });
    }

    private CompletableFuture<List<Answer<V>>> request(List<byte[]> sent, String requestKey) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        sent.forEach(body::writeBytes);
        CompletableFuture<List<Answer<V>>> answers =
                send.send(http, body.toByteArray(), requestKey).send(bytes -> parse(bytes, sent.size()));
        if (sent.size() > 1) return answers;
        // A line that is too large for any request.
        return answers.exceptionally(error -> {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            if (error instanceof ProblemException problem && problem.status() == 413)
                return List.of(new Answer<>(null, problem));
            if (cause instanceof ProblemException problem && problem.status() == 413)
                return List.of(new Answer<>(null, problem));
            if (error instanceof RuntimeException exception) throw exception;
            throw new NoroshiException("network", String.valueOf(error), error);
        });
    }

    private List<Answer<V>> parse(byte[] body, int count) throws IOException {
        List<Answer<V>> answers = new ArrayList<>(count);
        try (MappingIterator<JsonNode> values =
                Json.MAPPER.readerFor(JsonNode.class).readValues(body)) {
            while (values.hasNextValue()) {
                JsonNode value = values.nextValue();
                JsonNode error = value.get("error");
                answers.add(
                        error == null
                                ? new Answer<>(Json.MAPPER.treeToValue(value, type), null)
                                : new Answer<>(
                                        null, Http.problem(error.path("status").asInt(500), error, null)));
            }
        }
        if (answers.size() != count) throw new IOException("it has " + answers.size() + " lines instead of " + count);
        return answers;
    }
}
