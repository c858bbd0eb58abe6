package io.noroshi.server;

import java.time.Duration;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** The service answered a request, or a line of a batch, with a problem document (RFC 9457). */
public final class ProblemException extends NoroshiException {
    private static final long serialVersionUID = 1;
    /** Statuses after which the same request may succeed. */
    private static final Set<Integer> TRANSIENT = Set.of(408, 425, 429, 500, 502, 503, 504);

    private final int status;
    private final String title;
    private final @Nullable String field;
    private final @Nullable Duration retryAfter;

    ProblemException(
            int status,
            String code,
            String title,
            String detail,
            @Nullable String field,
            @Nullable Duration retryAfter) {
        super(code, detail);
        this.status = status;
        this.title = title;
        this.field = field;
        this.retryAfter = retryAfter;
    }

    /** The HTTP status. */
    public int status() {
        return status;
    }

    /** A short text, the same for all problems with this code. The message has the details. */
    public String title() {
        return title;
    }

    /** The wrong field or parameter. */
    public @Nullable String field() {
        return field;
    }

    /** How long to wait before another attempt, if the service stated it. */
    public @Nullable Duration retryAfter() {
        return retryAfter;
    }

    @Override
    public boolean isTransient() {
        return TRANSIENT.contains(status);
    }
}
