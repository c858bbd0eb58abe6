// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Which entries to list. Everything is optional.
 *
 * @param after {@code next} of the previous page.
 * @param limit Entries per page.
 * @param state States, separated by commas: {@code draft}, {@code scheduled}, {@code running}, {@code paused},
 *     {@code done}, {@code aborted}.
 * @param name A part of the name, whatever its case.
 * @param createdBy Who created it: the e-mail address of a person, or {@code key:} and the name of an API key.
 * @param createdSince Created at or after this time.
 * @param createdUntil Created before this time.
 * @param startSince {@code start_at} is at or after this time.
 * @param startUntil {@code start_at} is before this time.
 */
public record CampaignsQuery(
        @Nullable String after,
        @Nullable Integer limit,
        @Nullable String state,
        @Nullable String name,
        @Nullable String createdBy,
        @Nullable Instant createdSince,
        @Nullable Instant createdUntil,
        @Nullable Instant startSince,
        @Nullable Instant startUntil) {
    /** Everything. */
    public static final CampaignsQuery ALL = builder().build();

    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** The parameters of the request, except {@code after}. */
    public Map<String, @Nullable Object> parameters() {
        Map<String, @Nullable Object> parameters = new LinkedHashMap<>();
        parameters.put("limit", limit);
        parameters.put("state", state);
        parameters.put("name", name);
        parameters.put("created_by", createdBy);
        parameters.put("created_since", createdSince);
        parameters.put("created_until", createdUntil);
        parameters.put("start_since", startSince);
        parameters.put("start_until", startUntil);
        return parameters;
    }

    /** Builds a {@link CampaignsQuery}. */
    public static final class Builder {
        private @Nullable String after;
        private @Nullable Integer limit;
        private @Nullable String state;
        private @Nullable String name;
        private @Nullable String createdBy;
        private @Nullable Instant createdSince;
        private @Nullable Instant createdUntil;
        private @Nullable Instant startSince;
        private @Nullable Instant startUntil;

        private Builder() {}

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

        /**
         * States, separated by commas: {@code draft}, {@code scheduled}, {@code running}, {@code paused}, {@code done},
         * {@code aborted}.
         */
        public Builder state(@Nullable String state) {
            this.state = state;
            return this;
        }

        /** A part of the name, whatever its case. */
        public Builder name(@Nullable String name) {
            this.name = name;
            return this;
        }

        /** Who created it: the e-mail address of a person, or {@code key:} and the name of an API key. */
        public Builder createdBy(@Nullable String createdBy) {
            this.createdBy = createdBy;
            return this;
        }

        /** Created at or after this time. */
        public Builder createdSince(@Nullable Instant createdSince) {
            this.createdSince = createdSince;
            return this;
        }

        /** Created before this time. */
        public Builder createdUntil(@Nullable Instant createdUntil) {
            this.createdUntil = createdUntil;
            return this;
        }

        /** {@code start_at} is at or after this time. */
        public Builder startSince(@Nullable Instant startSince) {
            this.startSince = startSince;
            return this;
        }

        /** {@code start_at} is before this time. */
        public Builder startUntil(@Nullable Instant startUntil) {
            this.startUntil = startUntil;
            return this;
        }

        public CampaignsQuery build() {
            return new CampaignsQuery(
                    after, limit, state, name, createdBy, createdSince, createdUntil, startSince, startUntil);
        }
    }
}
