// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Absent fields of a variant are those of the campaign's message.
 *
 * @param notification Texts may contain placeholders: <code>&#123;&#123;name&#125;&#125;</code>.
 * @param data Any JSON. Default limit: 4 KiB. Strings may contain placeholders.
 * @param locales By language tag. The campaign's own {@code locales} do not apply to this variant.
 * @param holdOut Sends nothing to the devices of this variant, but counts them. Excludes other fields.
 */
public record CampaignTreatment(
        @Nullable Shown notification,
        @Nullable Object data,
        @Nullable Map<String, CampaignVariant> locales,
        @JsonProperty("hold_out") @Nullable Boolean holdOut) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link CampaignTreatment}. */
    public static final class Builder {
        private @Nullable Shown notification;
        private @Nullable Object data;
        private @Nullable Map<String, CampaignVariant> locales;
        private @Nullable Boolean holdOut;

        private Builder() {}

        /** Texts may contain placeholders: <code>&#123;&#123;name&#125;&#125;</code>. */
        public Builder notification(@Nullable Shown notification) {
            this.notification = notification;
            return this;
        }

        /** Any JSON. Default limit: 4 KiB. Strings may contain placeholders. */
        public Builder data(@Nullable Object data) {
            this.data = data;
            return this;
        }

        /** By language tag. The campaign's own {@code locales} do not apply to this variant. */
        public Builder locales(@Nullable Map<String, CampaignVariant> locales) {
            this.locales = locales;
            return this;
        }

        /** Sends nothing to the devices of this variant, but counts them. Excludes other fields. */
        public Builder holdOut(@Nullable Boolean holdOut) {
            this.holdOut = holdOut;
            return this;
        }

        public CampaignTreatment build() {
            return new CampaignTreatment(notification, data, locales, holdOut);
        }
    }
}
