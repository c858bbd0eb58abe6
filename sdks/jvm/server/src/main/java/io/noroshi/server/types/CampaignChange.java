// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import io.noroshi.server.Change;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Each field replaces that of the draft; null removes it. Fields may be incomplete or invalid: {@code problems} of the
 * response says what is missing.
 *
 * @param revision The revision that the author has changed.
 * @param name {@code name}
 * @param audience As in {@code NewCampaign}.
 * @param message As in {@code NewCampaign}.
 * @param locales As in {@code NewCampaign}.
 * @param experiment As in {@code NewCampaign}.
 * @param variables As in {@code NewCampaign}.
 * @param startAt {@code start_at}
 * @param localTime {@code local_time}
 * @param quietHours As in {@code NewCampaign}.
 * @param ratePerSecond {@code rate_per_second}
 * @param lane {@code lane}
 * @param batchSize {@code batch_size}
 */
public record CampaignChange(
        long revision,
        @Nullable Change<String> name,
        @Nullable Change<Object> audience,
        @Nullable Change<Object> message,
        @Nullable Change<Object> locales,
        @Nullable Change<Object> experiment,
        @Nullable Change<Object> variables,
        @JsonProperty("start_at") @Nullable Change<String> startAt,
        @JsonProperty("local_time") @Nullable Change<String> localTime,
        @JsonProperty("quiet_hours") @Nullable Change<Object> quietHours,
        @JsonProperty("rate_per_second") @Nullable Change<Long> ratePerSecond,
        @Nullable Change<String> lane,
        @JsonProperty("batch_size") @Nullable Change<Long> batchSize) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link CampaignChange}. */
    public static final class Builder {
        private @Nullable Long revision;
        private @Nullable Change<String> name;
        private @Nullable Change<Object> audience;
        private @Nullable Change<Object> message;
        private @Nullable Change<Object> locales;
        private @Nullable Change<Object> experiment;
        private @Nullable Change<Object> variables;
        private @Nullable Change<String> startAt;
        private @Nullable Change<String> localTime;
        private @Nullable Change<Object> quietHours;
        private @Nullable Change<Long> ratePerSecond;
        private @Nullable Change<String> lane;
        private @Nullable Change<Long> batchSize;

        private Builder() {}

        /** The revision that the author has changed. */
        public Builder revision(long revision) {
            this.revision = revision;
            return this;
        }

        /** {@code name} */
        public Builder name(String name) {
            this.name = Change.to(name);
            return this;
        }

        /** Clears {@code name}. */
        public Builder clearName() {
            name = Change.clear();
            return this;
        }

        /** As in {@code NewCampaign}. */
        public Builder audience(Object audience) {
            this.audience = Change.to(audience);
            return this;
        }

        /** Clears {@code audience}. */
        public Builder clearAudience() {
            audience = Change.clear();
            return this;
        }

        /** As in {@code NewCampaign}. */
        public Builder message(Object message) {
            this.message = Change.to(message);
            return this;
        }

        /** Clears {@code message}. */
        public Builder clearMessage() {
            message = Change.clear();
            return this;
        }

        /** As in {@code NewCampaign}. */
        public Builder locales(Object locales) {
            this.locales = Change.to(locales);
            return this;
        }

        /** Clears {@code locales}. */
        public Builder clearLocales() {
            locales = Change.clear();
            return this;
        }

        /** As in {@code NewCampaign}. */
        public Builder experiment(Object experiment) {
            this.experiment = Change.to(experiment);
            return this;
        }

        /** Clears {@code experiment}. */
        public Builder clearExperiment() {
            experiment = Change.clear();
            return this;
        }

        /** As in {@code NewCampaign}. */
        public Builder variables(Object variables) {
            this.variables = Change.to(variables);
            return this;
        }

        /** Clears {@code variables}. */
        public Builder clearVariables() {
            variables = Change.clear();
            return this;
        }

        /** {@code start_at} */
        public Builder startAt(String startAt) {
            this.startAt = Change.to(startAt);
            return this;
        }

        /** Clears {@code start_at}. */
        public Builder clearStartAt() {
            startAt = Change.clear();
            return this;
        }

        /** {@code local_time} */
        public Builder localTime(String localTime) {
            this.localTime = Change.to(localTime);
            return this;
        }

        /** Clears {@code local_time}. */
        public Builder clearLocalTime() {
            localTime = Change.clear();
            return this;
        }

        /** As in {@code NewCampaign}. */
        public Builder quietHours(Object quietHours) {
            this.quietHours = Change.to(quietHours);
            return this;
        }

        /** Clears {@code quiet_hours}. */
        public Builder clearQuietHours() {
            quietHours = Change.clear();
            return this;
        }

        /** {@code rate_per_second} */
        public Builder ratePerSecond(long ratePerSecond) {
            this.ratePerSecond = Change.to(ratePerSecond);
            return this;
        }

        /** Clears {@code rate_per_second}. */
        public Builder clearRatePerSecond() {
            ratePerSecond = Change.clear();
            return this;
        }

        /** {@code lane} */
        public Builder lane(String lane) {
            this.lane = Change.to(lane);
            return this;
        }

        /** Clears {@code lane}. */
        public Builder clearLane() {
            lane = Change.clear();
            return this;
        }

        /** {@code batch_size} */
        public Builder batchSize(long batchSize) {
            this.batchSize = Change.to(batchSize);
            return this;
        }

        /** Clears {@code batch_size}. */
        public Builder clearBatchSize() {
            batchSize = Change.clear();
            return this;
        }

        public CampaignChange build() {
            return new CampaignChange(
                    Objects.requireNonNull(revision, "revision"),
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
                    batchSize);
        }
    }
}
