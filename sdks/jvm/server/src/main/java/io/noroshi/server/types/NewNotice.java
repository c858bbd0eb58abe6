// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * With {@code notification}, {@code data} or both.
 *
 * @param announcedAt Shown from then on, as {@code announced}. Absent: at once.
 * @param startsAt When it becomes {@code active}.
 * @param endsAt When it is no longer shown.
 * @param notification At most 2 KiB.
 * @param data Any JSON for the app's code, at most 2 KiB.
 * @param locales By language tag. Absent fields are those of the notice.
 */
public record NewNotice(
        @JsonProperty("announced_at") @Nullable Instant announcedAt,
        @JsonProperty("starts_at") Instant startsAt,
        @JsonProperty("ends_at") Instant endsAt,
        @Nullable Shown notification,
        @Nullable Object data,
        @Nullable Map<String, NewNoticeLocale> locales) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewNotice}. */
    public static final class Builder {
        private @Nullable Instant announcedAt;
        private @Nullable Instant startsAt;
        private @Nullable Instant endsAt;
        private @Nullable Shown notification;
        private @Nullable Object data;
        private @Nullable Map<String, NewNoticeLocale> locales;

        private Builder() {}

        /** Shown from then on, as {@code announced}. Absent: at once. */
        public Builder announcedAt(@Nullable Instant announcedAt) {
            this.announcedAt = announcedAt;
            return this;
        }

        /** When it becomes {@code active}. */
        public Builder startsAt(Instant startsAt) {
            this.startsAt = startsAt;
            return this;
        }

        /** When it is no longer shown. */
        public Builder endsAt(Instant endsAt) {
            this.endsAt = endsAt;
            return this;
        }

        /** At most 2 KiB. */
        public Builder notification(@Nullable Shown notification) {
            this.notification = notification;
            return this;
        }

        /** Any JSON for the app's code, at most 2 KiB. */
        public Builder data(@Nullable Object data) {
            this.data = data;
            return this;
        }

        /** By language tag. Absent fields are those of the notice. */
        public Builder locales(@Nullable Map<String, NewNoticeLocale> locales) {
            this.locales = locales;
            return this;
        }

        public NewNotice build() {
            return new NewNotice(
                    announcedAt,
                    Objects.requireNonNull(startsAt, "startsAt"),
                    Objects.requireNonNull(endsAt, "endsAt"),
                    notification,
                    data,
                    locales);
        }
    }
}
