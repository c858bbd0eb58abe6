// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param name The name of an experiment that runs when the campaign starts.
 * @param control The variant that others are compared with. Default: the first that sends a message.
 * @param variants By variant of the experiment. Variants that are not listed get the campaign's message.
 */
public record CampaignExperiment(
        String name, @Nullable String control, @Nullable Map<String, CampaignTreatment> variants) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link CampaignExperiment}. */
    public static final class Builder {
        private @Nullable String name;
        private @Nullable String control;
        private @Nullable Map<String, CampaignTreatment> variants;

        private Builder() {}

        /** The name of an experiment that runs when the campaign starts. */
        public Builder name(String name) {
            this.name = name;
            return this;
        }

        /** The variant that others are compared with. Default: the first that sends a message. */
        public Builder control(@Nullable String control) {
            this.control = control;
            return this;
        }

        /** By variant of the experiment. Variants that are not listed get the campaign's message. */
        public Builder variants(@Nullable Map<String, CampaignTreatment> variants) {
            this.variants = variants;
            return this;
        }

        public CampaignExperiment build() {
            return new CampaignExperiment(Objects.requireNonNull(name, "name"), control, variants);
        }
    }
}
