// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param name {@code name}
 * @param environment {@code environment}
 * @param bundleId Of the credential with which it was created.
 * @param storage {@code storage}
 * @param apnsId Apple's id, with which the app subscribes. {@code null} while it is being created.
 * @param topic 1 to 255 bytes of UTF-8 without control characters, {@code +} and {@code #}. A topic that begins with
 *     {@code $} is {@code $maintenance}, or one that topic rules allow to MQTT clients.
 * @param waiting Broadcasts that wait; at most 1,000.
 * @param createdAt RFC 3339, UTC.
 * @param broadcasts The 20 newest, newest first. Only in the answer about one channel.
 */
public record Channel(
        String name,
        ApnsEnvironment environment,
        @JsonProperty("bundle_id") String bundleId,
        ChannelStorage storage,
        @JsonProperty("apns_id") @Nullable String apnsId,
        @Nullable String topic,
        long waiting,
        @JsonProperty("created_at") Instant createdAt,
        @Nullable List<BroadcastState> broadcasts) {}
