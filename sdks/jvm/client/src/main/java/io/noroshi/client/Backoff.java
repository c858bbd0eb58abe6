package io.noroshi.client;

import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeParseException;
import org.jspecify.annotations.Nullable;

/** Times to wait: CONTRACT.md B1 and B4. */
final class Backoff {
    private static final long HINT_MS_MAX = 3_600_000;

    private Backoff() {}

    /** Half a second, doubled after each failure up to 30 s; the second half of it is random. */
    static long ms(int failures, double random) {
        return Math.round(Math.min(30_000, 500 * Math.pow(2, failures)) * (0.5 + random / 2));
    }

    /** Milliseconds of a header {@code Retry-After}: seconds or a date (RFC 9110 §10.2.3). */
    static @Nullable Long retryAfterMs(@Nullable String header, long nowMs) {
        if (header == null || header.isEmpty()) return null;
        if (header.chars().allMatch(digit -> digit >= '0' && digit <= '9'))
            return header.length() > 9 ? HINT_MS_MAX : Math.min(Long.parseLong(header) * 1_000, HINT_MS_MAX);
        try {
            long at = ZonedDateTime.parse(header, DateTimeFormatter.RFC_1123_DATE_TIME)
                    .toInstant()
                    .toEpochMilli();
            return Math.max(0, Math.min(at - nowMs, HINT_MS_MAX));
        } catch (DateTimeParseException notADate) {
            return null;
        }
    }
}
