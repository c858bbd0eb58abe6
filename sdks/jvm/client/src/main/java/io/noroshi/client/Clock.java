package io.noroshi.client;

import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** Time, timers and random numbers. Tests replace it. */
interface Clock {
    /** Milliseconds since 1970. Never decreases. */
    long nowMs();

    /** Runs a task; the result cancels it. */
    Runnable schedule(long delayMs, Runnable task);

    /** From 0 up to, but not including, 1. */
    double random();

    /** The clock of the system. It keeps its pace if somebody sets the system's clock back. */
    final class System implements Clock {
        private static final ScheduledThreadPoolExecutor TIMERS = new ScheduledThreadPoolExecutor(1, task -> {
            Thread thread = new Thread(task, "noroshi-timer");
            thread.setDaemon(true);
            return thread;
        });

        static {
            TIMERS.setRemoveOnCancelPolicy(true);
        }

        private long lastMs = java.lang.System.currentTimeMillis();
        private long lastNanos = java.lang.System.nanoTime();

        @Override
        public synchronized long nowMs() {
            long nanos = java.lang.System.nanoTime();
            long passedMs = TimeUnit.NANOSECONDS.toMillis(nanos - lastNanos);
            lastNanos += TimeUnit.MILLISECONDS.toNanos(passedMs);
            lastMs = Math.max(lastMs + passedMs, java.lang.System.currentTimeMillis());
            return lastMs;
        }

        @Override
        public Runnable schedule(long delayMs, Runnable task) {
            Future<?> timer = TIMERS.schedule(task, delayMs, TimeUnit.MILLISECONDS);
            return () -> timer.cancel(false);
        }

        @Override
        public double random() {
            return ThreadLocalRandom.current().nextDouble();
        }
    }
}
