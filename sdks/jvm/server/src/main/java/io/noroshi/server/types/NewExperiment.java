// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param description For humans.
 * @param variants {@code variants}
 * @param startsAt No device is in it before. Absent: starts at once.
 * @param endsAt It ends and is archived. Absent: runs until archived.
 * @param audience {@code audience}
 * @param overrides Fixed variants, regardless of audience and weights. A device's entry takes precedence over its
 *     user's. At most 1,000 in total.
 * @param killed While true, no device is in it.
 */
public record NewExperiment(
        @Nullable String description,
        List<ExperimentVariant> variants,
        @JsonProperty("starts_at") @Nullable Instant startsAt,
        @JsonProperty("ends_at") @Nullable Instant endsAt,
        @Nullable ExperimentAudience audience,
        @Nullable NewExperimentOverrides overrides,
        @Nullable Boolean killed) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewExperiment}. */
    public static final class Builder {
        private @Nullable String description;
        private @Nullable List<ExperimentVariant> variants;
        private @Nullable Instant startsAt;
        private @Nullable Instant endsAt;
        private @Nullable ExperimentAudience audience;
        private @Nullable NewExperimentOverrides overrides;
        private @Nullable Boolean killed;

        private Builder() {}

        /** For humans. */
        public Builder description(@Nullable String description) {
            this.description = description;
            return this;
        }

        /** {@code variants} */
        public Builder variants(List<ExperimentVariant> variants) {
            this.variants = variants;
            return this;
        }

        /** No device is in it before. Absent: starts at once. */
        public Builder startsAt(@Nullable Instant startsAt) {
            this.startsAt = startsAt;
            return this;
        }

        /** It ends and is archived. Absent: runs until archived. */
        public Builder endsAt(@Nullable Instant endsAt) {
            this.endsAt = endsAt;
            return this;
        }

        /** {@code audience} */
        public Builder audience(@Nullable ExperimentAudience audience) {
            this.audience = audience;
            return this;
        }

        /**
         * Fixed variants, regardless of audience and weights. A device's entry takes precedence over its user's. At
         * most 1,000 in total.
         */
        public Builder overrides(@Nullable NewExperimentOverrides overrides) {
            this.overrides = overrides;
            return this;
        }

        /** While true, no device is in it. */
        public Builder killed(@Nullable Boolean killed) {
            this.killed = killed;
            return this;
        }

        public NewExperiment build() {
            return new NewExperiment(
                    description,
                    Objects.requireNonNull(variants, "variants"),
                    startsAt,
                    endsAt,
                    audience,
                    overrides,
                    killed);
        }
    }
}
