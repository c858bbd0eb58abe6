// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param id The id of the activity: 1 to 64 letters, digits and {@code .}, {@code _}, {@code -}.
 * @param state {@code expired}: its time was over.
 * @param version Of the state: 1 at the start, one more with each change.
 * @param attributesType {@code attributes_type}
 * @param attributes {@code attributes}
 * @param contentState {@code content_state}
 * @param staleDate RFC 3339, UTC.
 * @param relevance {@code relevance}
 * @param android {@code android}
 * @param when {@code when}
 * @param iosVia {@code ios_via}
 * @param frequentUpdates {@code frequent_updates}
 * @param join {@code join}
 * @param createdAt RFC 3339, UTC.
 * @param updatedAt RFC 3339, UTC.
 * @param expiresAt RFC 3339, UTC.
 * @param endedAt RFC 3339, UTC.
 * @param dismissalDate RFC 3339, UTC.
 * @param devices Devices that take part, as far as they are collected.
 * @param highPriorityLeft Updates with a high urgency that the budget allows now.
 * @param target Only for a single activity.
 * @param progress Only for a single activity.
 * @param change Only in the answer to a change.
 */
public record Activity(
        String id,
        ActivityState state,
        long version,
        @JsonProperty("attributes_type") String attributesType,
        @Nullable Map<String, @Nullable Object> attributes,
        @JsonProperty("content_state") @Nullable Map<String, @Nullable Object> contentState,
        @JsonProperty("stale_date") @Nullable Instant staleDate,
        @Nullable Double relevance,
        @Nullable ActivityAndroid android,
        When when,
        @JsonProperty("ios_via") @Nullable ActivityTransport iosVia,
        @JsonProperty("frequent_updates") boolean frequentUpdates,
        ActivityJoin join,
        @JsonProperty("created_at") Instant createdAt,
        @JsonProperty("updated_at") Instant updatedAt,
        @JsonProperty("expires_at") Instant expiresAt,
        @JsonProperty("ended_at") @Nullable Instant endedAt,
        @JsonProperty("dismissal_date") @Nullable Instant dismissalDate,
        long devices,
        @JsonProperty("high_priority_left") long highPriorityLeft,
        @Nullable ActivityTarget target,
        @Nullable ActivityProgress progress,
        @Nullable ActivityChange change) {}
