// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param topic 1 to 255 bytes of UTF-8 without control characters, {@code +} and {@code #}. A topic that begins with
 *     {@code $} is {@code $maintenance}, or one that topic rules allow to MQTT clients.
 * @param subscribers Devices with a durable subscription.
 * @param connected Connections that receive it now.
 * @param epoch Identifies one lifetime of the topic's log. Null if nothing was ever published.
 * @param offset The last assigned offset.
 * @param log Messages in the log.
 * @param retained {@code retained}
 */
public record Topic(
        String topic,
        long subscribers,
        long connected,
        @Nullable String epoch,
        long offset,
        long log,
        boolean retained) {}
