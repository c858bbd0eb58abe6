package io.noroshi.server;

import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** Time, timers and random numbers. Tests replace it. */
interface Clock {
    Instant now();

    /** Only differences count. */
    long nanoTime();

    /** Runs a task; the result cancels it. */
    Runnable schedule(Duration delay, Runnable task);

    /** From 0 up to, but not including, 1. */
    double random();

    Clock SYSTEM = new Clock() {
        private final ScheduledThreadPoolExecutor timers = timers();

        private static ScheduledThreadPoolExecutor timers() {
            ScheduledThreadPoolExecutor timers = new ScheduledThreadPoolExecutor(1, task -> {
                Thread thread = new Thread(task, "noroshi-timer");
                thread.setDaemon(true);
                return thread;
            });
            timers.setRemoveOnCancelPolicy(true);
            return timers;
        }

        @Override
        public Instant now() {
            return Instant.now();
        }

        @Override
        public long nanoTime() {
            return System.nanoTime();
        }

        @Override
        public Runnable schedule(Duration delay, Runnable task) {
            Future<?> timer = timers.schedule(task, delay.toNanos(), TimeUnit.NANOSECONDS);
            return () -> timer.cancel(false);
        }

        @Override
        public double random() {
            return ThreadLocalRandom.current().nextDouble();
        }
    };
}
