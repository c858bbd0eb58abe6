package io.noroshi.server;

import org.jspecify.annotations.Nullable;

/**
 * The result of one line of a batch: a value or an error.
 *
 * @param index the position of the line in the batch, from 0
 * @param line the line
 * @param value what the service answered
 * @param error the service's problem, or {@code invalid_line}: the line is not JSON, and was not sent
 * @param <L> the type of the lines
 * @param <V> the type of the values
 */
public record LineResult<L, V>(long index, L line, @Nullable V value, @Nullable NoroshiException error) {
    /** Whether the service accepted the line. */
    public boolean isOk() {
        return error == null;
    }
}
