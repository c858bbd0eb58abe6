package io.noroshi.client;

/** When the client acknowledges a stored message. */
public enum Acknowledge {
    /** After all its listeners have handled it. A message without a listener is not acknowledged. */
    HANDLED,
    /** When it arrives. */
    RECEIVED,
    /** When the application calls {@link NoroshiClient#ack}. */
    MANUAL
}
