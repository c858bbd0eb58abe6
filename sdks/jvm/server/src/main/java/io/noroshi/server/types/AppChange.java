// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import io.noroshi.server.Change;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The app's JWT settings. Absent fields stay; null clears a field.
 *
 * @param jwtSecret HS256.
 * @param jwksUrl URL of the RS256 and ES256 keys.
 * @param jwks RS256 and ES256 keys, inline (RFC 7517).
 * @param clientPublish MQTT topic filters that devices of the app may publish to. Default: none. null changes nothing.
 * @param issuer Required {@code iss} of the app's JWTs. Default: any. Only the operator can change it.
 * @param audience Required element of {@code aud} of the app's JWTs. Default: the app's name, if the JWT has an
 *     {@code aud}. Only the operator can change it.
 * @param essentialCategories Categories that ignore preferences. {@code []} clears the list. {@code null} keeps it.
 */
public record AppChange(
        @JsonProperty("jwt_secret") @Nullable Change<String> jwtSecret,
        @JsonProperty("jwks_url") @Nullable Change<String> jwksUrl,
        @Nullable Change<AppChangeJwks> jwks,
        @JsonProperty("client_publish") @Nullable Change<List<String>> clientPublish,
        @Nullable Change<String> issuer,
        @Nullable Change<String> audience,
        @JsonProperty("essential_categories") @Nullable Change<List<String>> essentialCategories) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link AppChange}. */
    public static final class Builder {
        private @Nullable Change<String> jwtSecret;
        private @Nullable Change<String> jwksUrl;
        private @Nullable Change<AppChangeJwks> jwks;
        private @Nullable Change<List<String>> clientPublish;
        private @Nullable Change<String> issuer;
        private @Nullable Change<String> audience;
        private @Nullable Change<List<String>> essentialCategories;

        private Builder() {}

        /** HS256. */
        public Builder jwtSecret(String jwtSecret) {
            this.jwtSecret = Change.to(jwtSecret);
            return this;
        }

        /** Clears {@code jwt_secret}. */
        public Builder clearJwtSecret() {
            jwtSecret = Change.clear();
            return this;
        }

        /** URL of the RS256 and ES256 keys. */
        public Builder jwksUrl(String jwksUrl) {
            this.jwksUrl = Change.to(jwksUrl);
            return this;
        }

        /** Clears {@code jwks_url}. */
        public Builder clearJwksUrl() {
            jwksUrl = Change.clear();
            return this;
        }

        /** RS256 and ES256 keys, inline (RFC 7517). */
        public Builder jwks(AppChangeJwks jwks) {
            this.jwks = Change.to(jwks);
            return this;
        }

        /** Clears {@code jwks}. */
        public Builder clearJwks() {
            jwks = Change.clear();
            return this;
        }

        /** MQTT topic filters that devices of the app may publish to. Default: none. null changes nothing. */
        public Builder clientPublish(List<String> clientPublish) {
            this.clientPublish = Change.to(clientPublish);
            return this;
        }

        /** Clears {@code client_publish}. */
        public Builder clearClientPublish() {
            clientPublish = Change.clear();
            return this;
        }

        /** Required {@code iss} of the app's JWTs. Default: any. Only the operator can change it. */
        public Builder issuer(String issuer) {
            this.issuer = Change.to(issuer);
            return this;
        }

        /** Clears {@code issuer}. */
        public Builder clearIssuer() {
            issuer = Change.clear();
            return this;
        }

        /**
         * Required element of {@code aud} of the app's JWTs. Default: the app's name, if the JWT has an {@code aud}.
         * Only the operator can change it.
         */
        public Builder audience(String audience) {
            this.audience = Change.to(audience);
            return this;
        }

        /** Clears {@code audience}. */
        public Builder clearAudience() {
            audience = Change.clear();
            return this;
        }

        /** Categories that ignore preferences. {@code []} clears the list. {@code null} keeps it. */
        public Builder essentialCategories(List<String> essentialCategories) {
            this.essentialCategories = Change.to(essentialCategories);
            return this;
        }

        /** Clears {@code essential_categories}. */
        public Builder clearEssentialCategories() {
            essentialCategories = Change.clear();
            return this;
        }

        public AppChange build() {
            return new AppChange(jwtSecret, jwksUrl, jwks, clientPublish, issuer, audience, essentialCategories);
        }
    }
}
