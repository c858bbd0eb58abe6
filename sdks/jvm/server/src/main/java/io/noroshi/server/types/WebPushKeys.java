// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param p256dh 65 bytes, base64url.
 * @param auth 16 bytes, base64url.
 */
public record WebPushKeys(String p256dh, String auth) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link WebPushKeys}. */
    public static final class Builder {
        private @Nullable String p256dh;
        private @Nullable String auth;

        private Builder() {}

        /** 65 bytes, base64url. */
        public Builder p256dh(String p256dh) {
            this.p256dh = p256dh;
            return this;
        }

        /** 16 bytes, base64url. */
        public Builder auth(String auth) {
            this.auth = auth;
            return this;
        }

        public WebPushKeys build() {
            return new WebPushKeys(Objects.requireNonNull(p256dh, "p256dh"), Objects.requireNonNull(auth, "auth"));
        }
    }
}
