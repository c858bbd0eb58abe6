package io.noroshi.client;

/**
 * Everything that was missed on a topic has arrived, except what {@code completeness} denies.
 *
 * @param topic the topic
 * @param completeness unless it is {@code COMPLETE}, read the state of the topic from your backend
 */
public record Recovered(String topic, Completeness completeness) {
    /** Whether messages are missing. */
    public enum Completeness {
        COMPLETE,
        /** Messages are missing. */
        INCOMPLETE,
        /** The service did not report it: server-sent events. */
        UNKNOWN
    }
}
