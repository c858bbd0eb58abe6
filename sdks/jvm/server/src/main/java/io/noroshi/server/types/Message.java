// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The same object that a device receives over its connection.
 *
 * @param id UUIDv7: ids sort by the time they were accepted.
 * @param topic {@code topic}
 * @param epoch {@code epoch}
 * @param offset {@code offset}
 * @param notification {@code notification}
 * @param data As published.
 * @param ack Present if the device must acknowledge it.
 * @param sentAt RFC 3339, UTC.
 */
public record Message(
        String id,
        @Nullable String topic,
        @Nullable String epoch,
        @Nullable Long offset,
        @Nullable Map<String, @Nullable Object> notification,
        @Nullable Object data,
        @Nullable Boolean ack,
        @JsonProperty("sent_at") Instant sentAt) {}
