package io.noroshi.client;

import java.util.EnumMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** What a {@link Machine} does later. It reads no clock: the caller says when a timer is due. */
final class Timers {
    enum Id {
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
        ACKS
    }

    record Timer(Id id, long atMs, long order, Runnable fire) {}

    private final Map<Id, Timer> all = new EnumMap<>(Id.class);
    private long order;

    void set(Id id, long atMs, Runnable fire) {
        all.put(id, new Timer(id, atMs, order++, fire));
    }

    void clear(Id... ids) {
        for (Id id : ids) all.remove(id);
    }

    boolean isSet(Id id) {
        return all.containsKey(id);
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
