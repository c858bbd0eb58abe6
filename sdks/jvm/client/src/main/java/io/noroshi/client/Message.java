package io.noroshi.client;

import java.time.Instant;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A message of a provider.
 *
 * @param id the same each time the message arrives
 * @param topic the topic to which it was published, if it was
 * @param epoch with {@code offset} its position in the log of the topic
 * @param offset with {@code epoch} its position in the log of the topic
 * @param isStored whether the service keeps it until the device acknowledges it
 * @param sentAt by the clock of the service
 * @param notification the visible part, such as {@code title} and {@code body}
 * @param data what the provider sent as {@code data}, as values of the platform: maps, lists, strings, numbers,
 *     booleans
 */
public record Message(
        String id,
        @Nullable String topic,
        @Nullable String epoch,
        @Nullable Long offset,
        boolean isStored,
        @Nullable Instant sentAt,
        @Nullable Map<String, @Nullable Object> notification,
        @Nullable Object data) {

    /** {@code data} as JSON, for a JSON library. */
    public String dataJson() {
        return Json.write(data);
    }

    /** The title of the notification. */
    public @Nullable String title() {
        return notification != null && notification.get("title") instanceof String title ? title : null;
    }

    /** The body of the notification. */
    public @Nullable String body() {
        return notification != null && notification.get("body") instanceof String body ? body : null;
    }

    static Message of(String id, Fields frame) {
        return new Message(
                id,
                frame.text("topic"),
                frame.text("epoch"),
                frame.number("offset"),
                Boolean.TRUE.equals(frame.flag("ack")),
                frame.time("sent_at"),
                frame.map("notification"),
                frame.value("data"));
    }
}
