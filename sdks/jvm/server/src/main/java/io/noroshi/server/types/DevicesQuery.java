// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Which entries to list. Everything is optional.
 *
 * @param user Only devices of this user.
 * @param platform Only devices of this platform.
 * @param token {@code none}: devices without a push token, also those whose token a push service invalidated.
 *     {@code any}, {@code usable}, {@code suspended}: devices with a token, with one that is in use, or with one that a
 *     push service reported as suspect.
 * @param service Only devices with a token of this push service; together with {@code token}, in that state.
 * @param kind Only devices with a token of this kind; together with {@code token}, in that state.
 * @param seen {@code never}: devices that were not seen since the database was upgraded to a version that records it.
 *     They are in no list by {@code seen_after} or {@code seen_before}.
 * @param seenAfter Only devices that were last seen on the day of this time (UTC) or later.
 * @param seenBefore Only devices that were last seen before the day of this time (UTC). Devices that were never seen
 *     are not among them: {@code seen=never}.
 * @param after {@code next} of the previous page.
 * @param limit Entries per page.
 */
public record DevicesQuery(
        @Nullable String user,
        @Nullable Platform platform,
        @Nullable DevicesQueryToken token,
        @Nullable PushService service,
        @Nullable PushTokenKind kind,
        @Nullable DevicesQuerySeen seen,
        @Nullable Instant seenAfter,
        @Nullable Instant seenBefore,
        @Nullable String after,
        @Nullable Integer limit) {
    /** Everything. */
    public static final DevicesQuery ALL = builder().build();

    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** The parameters of the request, except {@code after}. */
    public Map<String, @Nullable Object> parameters() {
        Map<String, @Nullable Object> parameters = new LinkedHashMap<>();
        parameters.put("user", user);
        parameters.put("platform", platform);
        parameters.put("token", token);
        parameters.put("service", service);
        parameters.put("kind", kind);
        parameters.put("seen", seen);
        parameters.put("seen_after", seenAfter);
        parameters.put("seen_before", seenBefore);
        parameters.put("limit", limit);
        return parameters;
    }

    /** Builds a {@link DevicesQuery}. */
    public static final class Builder {
        private @Nullable String user;
        private @Nullable Platform platform;
        private @Nullable DevicesQueryToken token;
        private @Nullable PushService service;
        private @Nullable PushTokenKind kind;
        private @Nullable DevicesQuerySeen seen;
        private @Nullable Instant seenAfter;
        private @Nullable Instant seenBefore;
        private @Nullable String after;
        private @Nullable Integer limit;

        private Builder() {}

        /** Only devices of this user. */
        public Builder user(@Nullable String user) {
            this.user = user;
            return this;
        }

        /** Only devices of this platform. */
        public Builder platform(@Nullable Platform platform) {
            this.platform = platform;
            return this;
        }

        /**
         * {@code none}: devices without a push token, also those whose token a push service invalidated. {@code any},
         * {@code usable}, {@code suspended}: devices with a token, with one that is in use, or with one that a push
         * service reported as suspect.
         */
        public Builder token(@Nullable DevicesQueryToken token) {
            this.token = token;
            return this;
        }

        /** Only devices with a token of this push service; together with {@code token}, in that state. */
        public Builder service(@Nullable PushService service) {
            this.service = service;
            return this;
        }

        /** Only devices with a token of this kind; together with {@code token}, in that state. */
        public Builder kind(@Nullable PushTokenKind kind) {
            this.kind = kind;
            return this;
        }

        /**
         * {@code never}: devices that were not seen since the database was upgraded to a version that records it. They
         * are in no list by {@code seen_after} or {@code seen_before}.
         */
        public Builder seen(@Nullable DevicesQuerySeen seen) {
            this.seen = seen;
            return this;
        }

        /** Only devices that were last seen on the day of this time (UTC) or later. */
        public Builder seenAfter(@Nullable Instant seenAfter) {
            this.seenAfter = seenAfter;
            return this;
        }

        /**
         * Only devices that were last seen before the day of this time (UTC). Devices that were never seen are not
         * among them: {@code seen=never}.
         */
        public Builder seenBefore(@Nullable Instant seenBefore) {
            this.seenBefore = seenBefore;
            return this;
        }

        /** {@code next} of the previous page. */
        public Builder after(@Nullable String after) {
            this.after = after;
            return this;
        }

        /** Entries per page. */
        public Builder limit(@Nullable Integer limit) {
            this.limit = limit;
            return this;
        }

        public DevicesQuery build() {
            return new DevicesQuery(user, platform, token, service, kind, seen, seenAfter, seenBefore, after, limit);
        }
    }
}
