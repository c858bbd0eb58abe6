package io.noroshi.client;

import java.util.List;
import org.jspecify.annotations.Nullable;

/** Why connections end: docs/close-reasons.md. */
final class CloseReasons {
    static final String LOST = "connection_lost";
    static final String CLOSED = "closed";
    static final String SIGNED_OUT = "signed_out";
    static final String QUEUE_FULL = "queue_full";
    static final String UNAUTHORIZED = "unauthorized";

    /** From the WebSocket close code 4000. */
    private static final List<String> CODES = List.of(
            "drain",
            "replaced",
            "expired",
            "revoked",
            "unauthorized",
            "auth_timeout",
            "ping_timeout",
            "slow_consumer",
            "rate_limited",
            "bad_message",
            "overloaded",
            "internal",
            "quota_exceeded",
            "rules_changed");

    private CloseReasons() {}

    /** The reason that a WebSocket close code stands for. */
    static @Nullable String of(int code) {
        return switch (code) {
            case 1002 -> "protocol_error";
            case 1007 -> "invalid_utf8";
            case 1009 -> "too_big";
            default -> code >= 4000 && code < 4000 + CODES.size() ? CODES.get(code - 4000) : null;
        };
    }

    static boolean rejectsToken(String reason) {
        return reason.equals("expired") || reason.equals("revoked") || reason.equals(UNAUTHORIZED);
    }
}
