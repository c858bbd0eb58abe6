package io.noroshi.client;

import java.util.HashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** What a {@link Machine} does later. It reads no clock: the caller says when a timer is due. */
final class Timers {
    /** At most one timer for each. */
    sealed interface Key {}

    enum Id implements Key {
        RETRY,
        CONNECT,
        PONG,
        BEAT,
        RENEW,
        WEBSOCKET,
        FLUSH,
        IDLE,
        TOKEN,
        OPENED,
        EXPOSURES,
        ACKS,
        PRESENCE
    }

    /** The repetition of a request. */
    record RepeatOf(int number) implements Key {}

    record Timer(Key key, long atMs, long order, Runnable fire) {}

    private final Map<Key, Timer> all = new HashMap<>();
    private long order;

    void set(Key key, long atMs, Runnable fire) {
        all.put(key, new Timer(key, atMs, order++, fire));
    }

    void clear(Key... keys) {
        for (Key key : keys) all.remove(key);
    }

    boolean isSet(Key key) {
        return all.containsKey(key);
    }

    /** The timer that is due first. */
    @Nullable
    Timer next() {
        Timer first = null;
        for (Timer timer : all.values())
            if (first == null || timer.atMs < first.atMs || timer.atMs == first.atMs && timer.order < first.order)
                first = timer;
        return first;
    }
}
