package io.noroshi.client;

import org.jspecify.annotations.Nullable;

/**
 * A request for a token.
 *
 * @param reason why a token is needed
 * @param previous the token that expires or was rejected
 */
public record TokenRequest(Reason reason, @Nullable String previous) {
    /** Why a token is needed. Do not return a cached token for {@code EXPIRING} and {@code REJECTED}. */
    public enum Reason {
        FIRST,
        EXPIRING,
        REJECTED;

        @Override
        public String toString() {
            return switch (this) {
                case FIRST -> "first";
                case EXPIRING -> "expiring";
                case REJECTED -> "rejected";
            };
        }
    }
}
