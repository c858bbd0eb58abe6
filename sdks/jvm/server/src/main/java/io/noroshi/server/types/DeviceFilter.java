// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * All lists must match. A device without the attribute does not match.
 *
 * @param platforms {@code platforms}
 * @param locales Language ranges: {@code ja} means {@code ja-JP} too (RFC 4647 §3.3.1).
 * @param timezones Existing IANA time zones.
 * @param appVersion {@code app_version}
 * @param tags The device has each of these tags, with one of the listed values.
 */
public record DeviceFilter(
        @Nullable List<Platform> platforms,
        @Nullable List<String> locales,
        @Nullable List<String> timezones,
        @JsonProperty("app_version") @Nullable DeviceFilterAppVersion appVersion,
        @Nullable Map<String, List<String>> tags) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link DeviceFilter}. */
    public static final class Builder {
        private @Nullable List<Platform> platforms;
        private @Nullable List<String> locales;
        private @Nullable List<String> timezones;
        private @Nullable DeviceFilterAppVersion appVersion;
        private @Nullable Map<String, List<String>> tags;

        private Builder() {}

        /** {@code platforms} */
        public Builder platforms(@Nullable List<Platform> platforms) {
            this.platforms = platforms;
            return this;
        }

        /** Language ranges: {@code ja} means {@code ja-JP} too (RFC 4647 §3.3.1). */
        public Builder locales(@Nullable List<String> locales) {
            this.locales = locales;
            return this;
        }

        /** Existing IANA time zones. */
        public Builder timezones(@Nullable List<String> timezones) {
            this.timezones = timezones;
            return this;
        }

        /** {@code app_version} */
        public Builder appVersion(@Nullable DeviceFilterAppVersion appVersion) {
            this.appVersion = appVersion;
            return this;
        }

        /** The device has each of these tags, with one of the listed values. */
        public Builder tags(@Nullable Map<String, List<String>> tags) {
            this.tags = tags;
            return this;
        }

        public DeviceFilter build() {
            return new DeviceFilter(platforms, locales, timezones, appVersion, tags);
        }
    }
}
