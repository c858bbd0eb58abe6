package io.noroshi.server;

import org.jspecify.annotations.Nullable;

/**
 * Every error of this library. {@link #code} is stable, texts are not.
 *
 * <p>Codes of the library itself: {@code network} (no connection, or it broke), {@code timeout}, {@code bad_answer}
 * (not what the API promises), {@code invalid_line} (a line of a batch is not JSON), {@code interrupted},
 * {@code bad_signature} and {@code bad_timestamp} (of webhooks). Other codes are the service's:
 * {@link io.noroshi.server.types.ProblemCode}.
 */
public class NoroshiException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final String code;
    private @Nullable String requestId;
    private int attempts;

    NoroshiException(String code, String message, @Nullable Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    NoroshiException(String code, String message) {
        this(code, message, null);
    }

    NoroshiException of(String request, int attempts) {
        requestId = request;
        this.attempts = attempts;
        return this;
    }

    /** A name of this library or of the service. */
    public String code() {
        return code;
    }

    /** The id of the request in the service's log. {@code null} if the error is not about a request. */
    public @Nullable String requestId() {
        return requestId;
    }

    /** How many attempts were made. 0 if the error is not about a request. */
    public int attempts() {
        return attempts;
    }

    /** Whether the same request may succeed later. */
    public boolean isTransient() {
        return code.equals("network") || code.equals("timeout");
    }

    @Override
    public String toString() {
        return getClass().getSimpleName() + ": " + code + ": " + getMessage()
                + (requestId == null ? "" : " (request " + requestId + ", " + attempts + " attempts)");
    }
}
