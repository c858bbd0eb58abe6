package io.noroshi.client;

/** Handles messages. */
@FunctionalInterface
public interface MessageListener {
    /**
     * Called for one message at a time, in the order of arrival. The client acknowledges the message after all its
     * listeners have returned. If one throws, the message arrives again in the next session.
     */
    void handle(Message message) throws Exception;
}
