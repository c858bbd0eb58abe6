package io.noroshi.client;

/** A listener that was added. */
@FunctionalInterface
public interface Registration extends AutoCloseable {
    /** Removes the listener. */
    @Override
    void close();
}
