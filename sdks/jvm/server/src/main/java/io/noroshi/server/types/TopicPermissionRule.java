// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

/**
 * A part of an answer.
 *
 * @param number Its index in the list, from 0.
 * @param topic {@code topic}
 * @param allow {@code allow}
 */
public record TopicPermissionRule(long number, String topic, String allow) {}
