package io.noroshi.client;

/**
 * The service refused or ended a subscription. The client does not try again.
 *
 * @param topic the topic
 * @param code {@code topic_forbidden} or {@code topic_revoked}
 * @param reason why the app's topic rules deny the topic
 */
public record Denied(String topic, String code, String reason) {}
