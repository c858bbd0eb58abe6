// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * One message to many devices.
 *
 * @param name A name for you to recognize it.
 * @param audience {@code audience}
 * @param message {@code message}
 * @param locales By language tag. The best match for the device's locale applies (RFC 4647 §3.4), otherwise the message
 *     itself.
 * @param experiment Sends the variants of an experiment, as defined when the campaign is created.
 * @param variables Default values of placeholders, for recipients without their own.
 * @param startAt Earliest start.
 * @param localTime At this local time of each device, today or tomorrow. Devices without a time zone use UTC.
 * @param quietHours {@code quiet_hours}
 * @param ratePerSecond Maximum recipients per second.
 * @param lane {@code extra} goes before other campaigns from the next batch on.
 * @param batchSize Recipients per batch.
 * @param start {@code false}: a draft until it is started. Default: {@code true}; always {@code false} for an upload.
 */
public record NewCampaign(
        @Nullable String name,
        @Nullable Audience audience,
        @Nullable CampaignMessage message,
        @Nullable Map<String, CampaignVariant> locales,
        @Nullable CampaignExperiment experiment,
        @Nullable Map<String, String> variables,
        @JsonProperty("start_at") @Nullable Instant startAt,
        @JsonProperty("local_time") @Nullable String localTime,
        @JsonProperty("quiet_hours") @Nullable NewCampaignQuietHours quietHours,
        @JsonProperty("rate_per_second") @Nullable Integer ratePerSecond,
        @Nullable CampaignLane lane,
        @JsonProperty("batch_size") @Nullable Integer batchSize,
        @Nullable Boolean start) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewCampaign}. */
    public static final class Builder {
        private @Nullable String name;
        private @Nullable Audience audience;
        private @Nullable CampaignMessage message;
        private @Nullable Map<String, CampaignVariant> locales;
        private @Nullable CampaignExperiment experiment;
        private @Nullable Map<String, String> variables;
        private @Nullable Instant startAt;
        private @Nullable String localTime;
        private @Nullable NewCampaignQuietHours quietHours;
        private @Nullable Integer ratePerSecond;
        private @Nullable CampaignLane lane;
        private @Nullable Integer batchSize;
        private @Nullable Boolean start;

        private Builder() {}

        /** A name for you to recognize it. */
        public Builder name(@Nullable String name) {
            this.name = name;
            return this;
        }

        /** {@code audience} */
        public Builder audience(@Nullable Audience audience) {
            this.audience = audience;
            return this;
        }

        /** {@code message} */
        public Builder message(@Nullable CampaignMessage message) {
            this.message = message;
            return this;
        }

        /**
         * By language tag. The best match for the device's locale applies (RFC 4647 §3.4), otherwise the message
         * itself.
         */
        public Builder locales(@Nullable Map<String, CampaignVariant> locales) {
            this.locales = locales;
            return this;
        }

        /** Sends the variants of an experiment, as defined when the campaign is created. */
        public Builder experiment(@Nullable CampaignExperiment experiment) {
            this.experiment = experiment;
            return this;
        }

        /** Default values of placeholders, for recipients without their own. */
        public Builder variables(@Nullable Map<String, String> variables) {
            this.variables = variables;
            return this;
        }

        /** Earliest start. */
        public Builder startAt(@Nullable Instant startAt) {
            this.startAt = startAt;
            return this;
        }

        /** At this local time of each device, today or tomorrow. Devices without a time zone use UTC. */
        public Builder localTime(@Nullable String localTime) {
            this.localTime = localTime;
            return this;
        }

        /** {@code quiet_hours} */
        public Builder quietHours(@Nullable NewCampaignQuietHours quietHours) {
            this.quietHours = quietHours;
            return this;
        }

        /** Maximum recipients per second. */
        public Builder ratePerSecond(@Nullable Integer ratePerSecond) {
            this.ratePerSecond = ratePerSecond;
            return this;
        }

        /** {@code extra} goes before other campaigns from the next batch on. */
        public Builder lane(@Nullable CampaignLane lane) {
            this.lane = lane;
            return this;
        }

        /** Recipients per batch. */
        public Builder batchSize(@Nullable Integer batchSize) {
            this.batchSize = batchSize;
            return this;
        }

        /** {@code false}: a draft until it is started. Default: {@code true}; always {@code false} for an upload. */
        public Builder start(@Nullable Boolean start) {
            this.start = start;
            return this;
        }

        public NewCampaign build() {
            return new NewCampaign(
                    name,
                    audience,
                    message,
                    locales,
                    experiment,
                    variables,
                    startAt,
                    localTime,
                    quietHours,
                    ratePerSecond,
                    lane,
                    batchSize,
                    start);
        }
    }
}
