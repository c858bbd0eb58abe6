package io.noroshi.client;

import java.util.concurrent.CompletionStage;

/** Handles messages without occupying a thread. */
@FunctionalInterface
public interface AsyncMessageListener {
    /**
     * Called for one message at a time, in the order of arrival. The client acknowledges the message after the stage
     * has completed. If it completes exceptionally, the message arrives again in the next session.
     */
    CompletionStage<?> handle(Message message) throws Exception;
}
