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
 * @param state {@code pending}: in an inbox or a topic's log, not expired.
 * @param when {@code when}
 * @param urgency {@code urgency}
 * @param target {@code target}
 * @param targets {@code targets}
 * @param counts Number of devices by outcome. Outcomes that are not listed are zero.
 * @param collapseKey {@code collapse_key}
 * @param category {@code category}
 * @param essential The category was essential when Noroshi accepted the notification: preferences do not apply. Absent
 *     if not.
 * @param retain {@code retain}
 * @param sentAt RFC 3339, UTC.
 * @param expiresAt RFC 3339, UTC.
 * @param trace Its trace, from the request's {@code traceparent} (docs/tracing.md). Absent if it was not traced.
 * @param broadcasts Its broadcasts to channels. Absent if there are none.
 */
public record NotificationState(
        String id,
        NotificationProgress state,
        When when,
        Urgency urgency,
        NotificationStateTarget target,
        @Nullable Long targets,
        Map<String, Long> counts,
        @JsonProperty("collapse_key") @Nullable String collapseKey,
        @Nullable String category,
        @Nullable Boolean essential,
        boolean retain,
        @JsonProperty("sent_at") Instant sentAt,
        @JsonProperty("expires_at") Instant expiresAt,
        @Nullable String trace,
        @Nullable List<BroadcastState> broadcasts) {}
