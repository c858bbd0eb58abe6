// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param id UUIDv7: ids sort by the time they were accepted.
 * @param sentAt RFC 3339, UTC.
 * @param expiresAt RFC 3339, UTC.
 * @param when {@code when}
 * @param urgency {@code urgency}
 * @param target {@code target}
 * @param targets {@code targets}
 * @param title At most 200 characters of it.
 * @param text At most 200 characters of the body.
 * @param category {@code category}
 * @param campaign The campaign that published it.
 * @param state {@code null} if it has too many outcomes for a list: read it alone.
 * @param counts Number of devices by outcome. {@code null} like {@code state}.
 * @param recipients With a filter by user or device: its devices that the notification reached or waits for.
 */
public record ListedNotification(
        String id,
        @JsonProperty("sent_at") Instant sentAt,
        @JsonProperty("expires_at") Instant expiresAt,
        When when,
        Urgency urgency,
        ListedNotificationTarget target,
        @Nullable Long targets,
        @Nullable String title,
        @Nullable String text,
        @Nullable String category,
        @Nullable String campaign,
        @Nullable NotificationProgress state,
        @Nullable Map<String, Long> counts,
        @Nullable List<NotificationRecipient> recipients) {}
