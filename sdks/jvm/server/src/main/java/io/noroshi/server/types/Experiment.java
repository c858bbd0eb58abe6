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
 * @param state {@code state}
 * @param description {@code description}
 * @param variants {@code variants}
 * @param startsAt RFC 3339, UTC.
 * @param endsAt RFC 3339, UTC.
 * @param audience {@code audience}
 * @param overrides Fixed variants, regardless of audience and weights. A device's entry takes precedence over its
 *     user's. At most 1,000 in total.
 * @param killed {@code killed}
 * @param createdAt RFC 3339, UTC.
 * @param updatedAt RFC 3339, UTC.
 * @param archivedAt RFC 3339, UTC.
 */
public record Experiment(
        String name,
        ExperimentState state,
        @Nullable String description,
        List<ExperimentVariant> variants,
        @JsonProperty("starts_at") @Nullable Instant startsAt,
        @JsonProperty("ends_at") @Nullable Instant endsAt,
        ExperimentAudience audience,
        ExperimentOverrides overrides,
        boolean killed,
        @JsonProperty("created_at") Instant createdAt,
        @JsonProperty("updated_at") Instant updatedAt,
        @JsonProperty("archived_at") @Nullable Instant archivedAt) {}
