// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param device One installed app: 1 to 128 bytes without control characters.
 * @param outcome The newest step on the device. {@code null}: none is recorded, or there are too many to look for it.
 * @param at When. RFC 3339, UTC.
 * @param reason The push service's own reason.
 * @param inInbox It waits in the device's inbox.
 */
public record NotificationRecipient(
        String device,
        @Nullable Outcome outcome,
        @Nullable Instant at,
        @Nullable String reason,
        @JsonProperty("in_inbox") boolean inInbox) {}
