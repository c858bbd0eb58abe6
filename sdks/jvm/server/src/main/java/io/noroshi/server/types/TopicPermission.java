// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param device {@code device}
 * @param user {@code user}
 * @param topic {@code topic}
 * @param action {@code action}
 * @param decision {@code decision}
 * @param reason If denied: {@code no_rule}, {@code server_only}, {@code not_in_token} or {@code overlap}.
 * @param detail {@code detail}
 * @param rule The rule that decides.
 */
public record TopicPermission(
        String device,
        @Nullable String user,
        String topic,
        TopicAction action,
        TopicPermissionDecision decision,
        @Nullable String reason,
        String detail,
        @Nullable TopicPermissionRule rule) {}
