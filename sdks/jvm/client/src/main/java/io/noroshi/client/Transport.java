package io.noroshi.client;

/** A way to connect. */
public enum Transport {
    WEBSOCKET("websocket"),
    /** Server-sent events, for networks that block WebSockets. */
    SSE("sse");

    final String label;

    Transport(String label) {
        this.label = label;
    }

    @Override
    public String toString() {
        return label;
    }
}
