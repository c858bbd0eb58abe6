package io.noroshi.client;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;

/** A clock that moves only when a vector says so, and the random numbers of the vector. */
final class ManualClock implements Clock {
    private record Timer(long atMs, Runnable task) {}

    private long now = Vectors.START_MS;
    private final List<Timer> timers = new ArrayList<>();
    private final ArrayDeque<Double> random;

    ManualClock(Collection<Double> random) {
        this.random = new ArrayDeque<>(random);
    }

    @Override
    public synchronized long nowMs() {
        return now;
    }

    @Override
    public synchronized Runnable schedule(long delayMs, Runnable task) {
        Timer timer = new Timer(now + delayMs, task);
        timers.add(timer);
        return () -> {
            synchronized (this) {
                timers.remove(timer);
            }
        };
    }

    @Override
    public synchronized double random() {
        if (random.isEmpty()) throw new IllegalStateException("the vector has no more random numbers");
        return random.removeFirst();
    }

    synchronized boolean hasRandom() {
        return !random.isEmpty();
    }

    /** Calls every timer that is due, in order. */
    void advance(long ms, Runnable between) {
        long end = nowMs() + ms;
        while (true) {
            Timer first;
            synchronized (this) {
                first = timers.stream()
                        .filter(timer -> timer.atMs <= end)
                        .min(Comparator.comparingLong(Timer::atMs))
                        .orElse(null);
                if (first == null) {
                    now = end;
                    return;
                }
                timers.remove(first);
                now = Math.max(now, first.atMs);
            }
            first.task.run();
            between.run();
        }
    }
}
