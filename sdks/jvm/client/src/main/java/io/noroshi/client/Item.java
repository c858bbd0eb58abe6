package io.noroshi.client;

import java.time.Instant;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * An entry of the user's notification centre.
 *
 * @param id the id of the message
 * @param state {@code unread}, {@code read} or {@code archived}
 * @param category its category, if it has one
 * @param createdAt when it was added
 * @param changedAt when its state changed
 * @param expiresAt until when the service lists it
 * @param notification the visible part
 * @param data what the provider sent as {@code data}
 */
public record Item(
        String id,
        String state,
        @Nullable String category,
        @Nullable Instant createdAt,
        @Nullable Instant changedAt,
        @Nullable Instant expiresAt,
        @Nullable Map<String, @Nullable Object> notification,
        @Nullable Object data) {
    static Item of(Fields fields) {
        return new Item(
                fields.text("id", ""),
                fields.text("state", ""),
                fields.text("category"),
                fields.time("created_at"),
                fields.time("changed_at"),
                fields.time("expires_at"),
                fields.map("notification"),
                fields.value("data"));
    }
}
