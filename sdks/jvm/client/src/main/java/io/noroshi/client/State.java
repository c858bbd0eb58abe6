package io.noroshi.client;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * The state of the connection.
 *
 * @param status what the client does
 * @param reason why the last connection ended, of {@code WAITING} and {@code CLOSED}: a close reason of the service, or
 *     {@code connection_lost}, {@code closed} (the application called {@link NoroshiClient#close}), {@code signed_out},
 *     {@code queue_full} (the application handles messages more slowly than they arrive)
 * @param retryIn until the next attempt, of {@code WAITING}
 * @param transport how it is connected, of {@code CONNECTED}
 * @param device the id of the device, of {@code CONNECTED}; server-sent events do not report it
 */
public record State(
        Status status,
        @Nullable String reason,
        @Nullable Duration retryIn,
        @Nullable Transport transport,
        @Nullable String device) {
    /** What the client does. */
    public enum Status {
        /** It has not started. */
        IDLE,
        /** It gets a token, connects and logs in. */
        CONNECTING,
        CONNECTED,
        /** It waits for the next attempt. */
        WAITING,
        /** It has ended, until {@link NoroshiClient#connect} is called again. */
        CLOSED
    }

    static State of(Status status) {
        return new State(status, null, null, null, null);
    }

    /** Whether the client is connected. */
    public boolean isConnected() {
        return status == Status.CONNECTED;
    }
}
