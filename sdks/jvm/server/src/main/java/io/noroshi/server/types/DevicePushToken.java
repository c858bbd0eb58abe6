// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import org.jspecify.annotations.Nullable;

/**
 * A push token of a device. {@code token} is as registered, and only in lists of tokens.
 *
 * @param kind {@code kind}
 * @param name Empty: none.
 * @param service {@code service}
 * @param environment {@code environment}
 * @param topic APNs: the app's bundle id, if the token has its own.
 * @param registeredAt RFC 3339, UTC.
 * @param expiresAt Nothing is sent to the token from then on. {@code null}: never.
 * @param suspect The token is suspended since then, until it is registered again.
 * @param main Ordinary pushes go to this token: the message token that was registered last.
 * @param token {@code token}
 */
public record DevicePushToken(
        PushTokenKind kind,
        String name,
        PushService service,
        ApnsEnvironment environment,
        @Nullable String topic,
        @JsonProperty("registered_at") Instant registeredAt,
        @JsonProperty("expires_at") @Nullable Instant expiresAt,
        @Nullable DevicePushTokenSuspect suspect,
        boolean main,
        @Nullable PushToken token) {}
