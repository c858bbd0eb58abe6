package io.noroshi.server;

import org.jspecify.annotations.Nullable;

/**
 * The trace to which a request belongs: W3C Trace Context. A context that violates the specification is ignored,
 * because tracing must not prevent a delivery.
 *
 * @param traceparent such as {@code 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01}
 * @param tracestate of the vendors
 */
public record TraceContext(String traceparent, @Nullable String tracestate) {
    boolean isValid() {
        return traceparent.matches("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}");
    }

    boolean hasState() {
        return tracestate != null && tracestate.matches("[ -~]{1,512}");
    }
}
