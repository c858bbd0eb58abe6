package io.noroshi.client;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** Messages on their way to the application: each id once, one at a time, in order. CONTRACT.md D, A, R7 and L2. */
final class Inflow {
    static final int QUEUE_MAX = 1_000;
    private static final int SEEN_MAX = 4_096;

    record Position(String epoch, long offset) {}

    /** A message, or a task for the time when all earlier messages are settled. */
    private record Entry(@Nullable Message message, @Nullable Runnable then, int session) {}

    private final Machine machine;
    private final ArrayDeque<Entry> queue = new ArrayDeque<>();
    /** The application has the first message of the queue. */
    private boolean isPassed;

    private boolean isPumping;
    /** Ids, oldest first; the value is whether the message was handled. */
    private final LinkedHashMap<String, Boolean> seen = new LinkedHashMap<>();
    /** Topics with a message that was not handled: acknowledging a later one would acknowledge it too (A3). */
    private final Set<String> blocked = new HashSet<>();
    /** Of topics: behind the last handled message. */
    final Map<String, Position> positions = new HashMap<>();
    /** X5: the last handled stored message of a stream, while none failed. */
    @Nullable
    String lastId;

    int session;
    private boolean isStream;
    private boolean hasFailed;

    Inflow(Machine machine) {
        this.machine = machine;
    }

    int size() {
        return queue.size();
    }

    /** A new session: messages that were not handled arrive again. */
    void restart(boolean isStream) {
        session++;
        this.isStream = isStream;
        if (!isStream) lastId = null; // X5
        blocked.clear();
        hasFailed = false;
    }

    /** False if the queue is full. The message was dropped and has to arrive again. */
    boolean receive(Message message) {
        Boolean known = seen.get(message.id());
        if (known != null) {
            if (known) handled(message, session); // D2
            return true;
        }
        if (queue.size() >= QUEUE_MAX) return false;
        seen.put(message.id(), false);
        forgetOldest();
        queue.add(new Entry(message, null, session));
        pump();
        return true;
    }

    /** D4 */
    private void forgetOldest() {
        if (seen.size() <= SEEN_MAX) return;
        for (Iterator<Boolean> all = seen.values().iterator(); all.hasNext(); )
            if (all.next()) {
                all.remove();
                return;
            }
    }

    /** Runs a task after all earlier messages are settled. */
    void after(Runnable then) {
        if (queue.isEmpty()) {
            then.run();
            return;
        }
        queue.add(new Entry(null, then, session));
        pump();
    }

    /** Everything up to here was handled (R5, R7). */
    void reach(String topic, String epoch, long offset) {
        if (blocked.contains(topic)) return;
        Position known = positions.get(topic);
        if (known == null || !known.epoch.equals(epoch) || known.offset < offset)
            positions.put(topic, new Position(epoch, offset));
    }

    /** Drops what the application does not have yet. It arrives again in the next session. */
    void drop() {
        List<Entry> kept = new ArrayList<>();
        if (isPassed) kept.add(queue.removeFirst());
        for (Entry entry : queue) if (entry.message != null) seen.remove(entry.message.id());
        queue.clear();
        queue.addAll(kept);
    }

    /** The result of the message that the application has. */
    void settled(boolean isHandled) {
        if (!isPassed) return;
        isPassed = false;
        settle(isHandled);
        pump();
    }

    boolean isPassed() {
        return isPassed;
    }

    private void pump() {
        if (isPumping) return;
        isPumping = true;
        try {
            while (!isPassed && !queue.isEmpty()) {
                Entry first = queue.getFirst();
                if (first.message == null) {
                    shift();
                    if (first.then != null) first.then.run();
                } else if (!machine.hasListener(first.message.topic())) settle(false); // A4
                else {
                    isPassed = true;
                    machine.effect(new Effect.Pass(first.message));
                }
            }
        } finally {
            isPumping = false;
        }
    }

    private Entry shift() {
        Entry first = queue.removeFirst();
        if (queue.isEmpty()) machine.later(machine::caughtUp);
        return first;
    }

    private void settle(boolean isHandled) {
        Entry first = shift();
        Message message = first.message;
        if (message == null) return;
        if (isHandled) {
            seen.put(message.id(), true);
            handled(message, first.session);
            return;
        }
        seen.remove(message.id());
        hasFailed = true;
        if (message.topic() != null) blocked.add(message.topic());
    }

    private void handled(Message message, int arrivedIn) {
        String topic = message.topic();
        if (topic != null) {
            if (blocked.contains(topic)) return;
            if (message.epoch() != null && message.offset() != null && machine.isSubscribed(topic))
                reach(topic, message.epoch(), message.offset());
        }
        if (!message.isStored()) return; // A7
        if (isStream && arrivedIn == session && !hasFailed) lastId = message.id();
        machine.acknowledgeHandled(message.id());
    }
}
