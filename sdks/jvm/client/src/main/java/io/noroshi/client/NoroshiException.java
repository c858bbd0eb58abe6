package io.noroshi.client;

import org.jspecify.annotations.Nullable;

/**
 * Every error of this library. {@link #code} is stable, texts are not.
 *
 * <p>Codes of the library itself: {@code token_failed} (the token source failed or took too long), {@code unauthorized}
 * (the service rejected several tokens in a row), {@code network} (a request found no server, or broke),
 * {@code timeout} (a request took longer than 30 seconds), {@code bad_frame} (the service sent something that is not a
 * frame of the protocol), {@code listener_failed} (a listener for messages failed; the cause is its exception),
 * {@code queue_full} (a bounded queue dropped its oldest entry), {@code bad_topic} (server-sent events cannot carry
 * this topic, whose name has a comma; a WebSocket will), {@code signed_out} (the token source reported that nobody is
 * signed in). Other codes are the service's.
 */
public class NoroshiException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final String code;
    private final @Nullable String topic;
    private final @Nullable String reason;

    NoroshiException(String code, String message) {
        this(code, message, null, null, null);
    }

    NoroshiException(String code, String message, @Nullable Throwable cause) {
        this(code, message, cause, null, null);
    }

    NoroshiException(
            String code, String message, @Nullable Throwable cause, @Nullable String topic, @Nullable String reason) {
        super(message, cause);
        this.code = code;
        this.topic = topic;
        this.reason = reason;
    }

    /** A name of this library, of an error frame, or of a problem document. */
    public String code() {
        return code;
    }

    /** The topic, for an error about one topic. */
    public @Nullable String topic() {
        return topic;
    }

    /** Why topic rules denied the topic. */
    public @Nullable String reason() {
        return reason;
    }

    @Override
    public String toString() {
        return getClass().getSimpleName() + ": " + code + ": " + getMessage();
    }
}
