// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;

/**
 * A part of an answer.
 *
 * @param device One installed app: 1 to 128 bytes without control characters.
 * @param token For {@code Authorization: Bearer} on {@code /v1/me}, and to connect.
 * @param expiresAt RFC 3339, UTC.
 * @param connect Where to connect, by protocol. MQTT and XMPP over TCP are present if the operator set
 *     {@code mqtt.public_url} and {@code xmpp.public_url}.
 */
public record Registered(
        String device, String token, @JsonProperty("expires_at") Instant expiresAt, RegisteredConnect connect) {}
