package io.noroshi.server;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * Options of requests. {@code null}: those of the client.
 *
 * @param timeout for each attempt, until its answer was read
 * @param deadline for all attempts and the time between them
 * @param attempts how many attempts at most; 1 means no retry
 * @param idempotencyKey 1 to 255 visible ASCII characters: for 24 hours, the service answers a request with the same
 *     key as it answered the first one, and accepts nothing again. {@code null}: a random key for each request, the
 *     same for all of its attempts
 * @param requestId {@code X-Request-Id}, which the service logs: 1 to 128 letters, digits and {@code - _ .}.
 *     {@code null}: a UUID
 * @param trace the trace to which the requests belong
 */
public record RequestOptions(
        @Nullable Duration timeout,
        @Nullable Duration deadline,
        @Nullable Integer attempts,
        @Nullable String idempotencyKey,
        @Nullable String requestId,
        @Nullable TraceContext trace) {
    static final RequestOptions NONE = builder().build();

    public RequestOptions {
        if (timeout != null && (timeout.isZero() || timeout.isNegative()))
            throw new IllegalArgumentException("timeout must be positive");
        if (deadline != null && (deadline.isZero() || deadline.isNegative()))
            throw new IllegalArgumentException("deadline must be positive");
        if (attempts != null && attempts < 1) throw new IllegalArgumentException("attempts must be at least 1");
        if (idempotencyKey != null && !idempotencyKey.matches("[!-~]{1,255}"))
            throw new IllegalArgumentException("idempotencyKey must be 1 to 255 visible ASCII characters");
        if (requestId != null && !requestId.matches("[A-Za-z0-9._-]{1,128}"))
            throw new IllegalArgumentException("requestId must be 1 to 128 letters, digits and - _ .");
    }

    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Options with an idempotency key. */
    public static RequestOptions idempotent(String key) {
        return builder().idempotencyKey(key).build();
    }

    /** Builds {@link RequestOptions}. */
    public static final class Builder {
        private @Nullable Duration timeout;
        private @Nullable Duration deadline;
        private @Nullable Integer attempts;
        private @Nullable String idempotencyKey;
        private @Nullable String requestId;
        private @Nullable TraceContext trace;

        private Builder() {}

        public Builder timeout(@Nullable Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        public Builder deadline(@Nullable Duration deadline) {
            this.deadline = deadline;
            return this;
        }

        public Builder attempts(@Nullable Integer attempts) {
            this.attempts = attempts;
            return this;
        }

        public Builder idempotencyKey(@Nullable String idempotencyKey) {
            this.idempotencyKey = idempotencyKey;
            return this;
        }

        public Builder requestId(@Nullable String requestId) {
            this.requestId = requestId;
            return this;
        }

        public Builder trace(@Nullable TraceContext trace) {
            this.trace = trace;
            return this;
        }

        public RequestOptions build() {
            return new RequestOptions(timeout, deadline, attempts, idempotencyKey, requestId, trace);
        }
    }
}
