package io.noroshi.client;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** The service answered a request with a problem document (RFC 9457). */
public final class ProblemException extends NoroshiException {
    private static final long serialVersionUID = 1;

    private final int status;
    private final @Nullable String field;
    private final @Nullable String requestId;
    private final @Nullable Duration retryAfter;

    ProblemException(
            String code,
            String message,
            int status,
            @Nullable String field,
            @Nullable String requestId,
            @Nullable Duration retryAfter) {
        super(code, message);
        this.status = status;
        this.field = field;
        this.requestId = requestId;
        this.retryAfter = retryAfter;
    }

    /** The HTTP status. */
    public int status() {
        return status;
    }

    /** The wrong field or parameter. */
    public @Nullable String field() {
        return field;
    }

    /** The id of the request in the service's log. */
    public @Nullable String requestId() {
        return requestId;
    }

    /** How long to wait before another attempt, if the service stated it. */
    public @Nullable Duration retryAfter() {
        return retryAfter;
    }
}
