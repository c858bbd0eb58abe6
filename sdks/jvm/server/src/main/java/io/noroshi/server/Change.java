package io.noroshi.server;

import com.fasterxml.jackson.annotation.JsonValue;
import org.jspecify.annotations.Nullable;

/**
 * A field of a request that changes something: an absent field stays as it is, {@code null} clears it.
 *
 * @param value the new value; {@code null} clears the field
 * @param <T> the type of the field
 */
public record Change<T>(@JsonValue @Nullable T value) {
    /** A new value. */
    public static <T> Change<T> to(T value) {
        return new Change<>(value);
    }

    /** No value. */
    public static <T> Change<T> clear() {
        return new Change<>(null);
    }
}
