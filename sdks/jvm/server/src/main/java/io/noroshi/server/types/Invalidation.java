// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Instant;

/**
 * A push service invalidated a token.
 *
 * @param seq Its position: {@code after} of the next page.
 * @param at RFC 3339, UTC.
 * @param device One installed app: 1 to 128 bytes without control characters.
 * @param service {@code service}
 * @param kind {@code kind}
 * @param name Empty: none.
 * @param environment {@code environment}
 * @param reason The push service's reason.
 * @param removed {@code false}: suspended, because it seems to belong to another environment, topic or sender.
 */
public record Invalidation(
        String seq,
        Instant at,
        String device,
        PushService service,
        PushTokenKind kind,
        String name,
        ApnsEnvironment environment,
        String reason,
        boolean removed) {}
