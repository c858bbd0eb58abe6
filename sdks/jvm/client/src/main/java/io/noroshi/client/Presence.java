package io.noroshi.client;

import org.jspecify.annotations.Nullable;

/** Whether the user looks at the application. */
public enum Presence {
    ACTIVE,
    IDLE,
    /** Without a connection. */
    OFFLINE;

    static @Nullable Presence of(@Nullable String text) {
        for (Presence one : values()) if (one.toString().equals(text)) return one;
        return null;
    }

    @Override
    public String toString() {
        return switch (this) {
            case ACTIVE -> "active";
            case IDLE -> "idle";
            case OFFLINE -> "offline";
        };
    }
}
