// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param name {@code name}
 * @param createdAt RFC 3339, UTC.
 * @param jwtSecretSet {@code jwt_secret_set}
 * @param jwksUrl {@code jwks_url}
 * @param jwksSet {@code jwks_set}
 * @param issuer Required {@code iss} of the app's JWTs. Default: any. Only the operator can change it.
 * @param audience Required element of {@code aud} of the app's JWTs. Default: the app's name, if the JWT has an
 *     {@code aud}. Only the operator can change it.
 * @param clientPublish MQTT topic filters that devices of the app may publish to.
 * @param essentialCategories Categories that ignore preferences.
 */
public record App(
        String name,
        @JsonProperty("created_at") Instant createdAt,
        @JsonProperty("jwt_secret_set") boolean jwtSecretSet,
        @JsonProperty("jwks_url") @Nullable String jwksUrl,
        @JsonProperty("jwks_set") boolean jwksSet,
        @Nullable String issuer,
        @Nullable String audience,
        @JsonProperty("client_publish") List<String> clientPublish,
        @JsonProperty("essential_categories") List<String> essentialCategories) {}
