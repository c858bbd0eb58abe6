package io.noroshi.server;

import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeParseException;
import org.jspecify.annotations.Nullable;

/** How long to wait before another attempt. */
final class Backoff {
    private static final long FIRST_MS = 250;
    private static final long LAST_MS = 10_000;

    private Backoff() {}

    /** Exponential backoff with full jitter, after {@code Retry-After} if the answer has it. */
    static Duration delay(NoroshiException error, int attempt, double random) {
        long max = Math.min(LAST_MS, FIRST_MS << Math.min(attempt - 1, 10));
        Duration hint = error instanceof ProblemException problem ? problem.retryAfter() : null;
        return (hint == null ? Duration.ZERO : hint).plusMillis(Math.round(random * max));
    }

    /** A header {@code Retry-After}: seconds or a date (RFC 9110 §10.2.3). */
    static @Nullable Duration retryAfter(@Nullable String header, Instant now) {
        if (header == null) return null;
        if (header.matches("\\d{1,9}")) return Duration.ofSeconds(Long.parseLong(header));
        try {
            Duration until = Duration.between(
                    now,
                    ZonedDateTime.parse(header, DateTimeFormatter.RFC_1123_DATE_TIME)
                            .toInstant());
            return until.isNegative() ? Duration.ZERO : until;
        } catch (DateTimeParseException notADate) {
            return null;
        }
    }
}
