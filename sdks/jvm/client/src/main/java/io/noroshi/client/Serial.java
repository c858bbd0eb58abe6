package io.noroshi.client;

import java.util.ArrayDeque;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import org.jspecify.annotations.Nullable;

/** Runs tasks one at a time, in order, on another executor. Bounded: drops the oldest task that waits. */
final class Serial {
    private final Executor executor;
    private final int max;
    private final ArrayDeque<Runnable> tasks = new ArrayDeque<>();
    private boolean isRunning;

    Serial(Executor executor, int max) {
        this.executor = executor;
        this.max = max;
    }

    void execute(Runnable task) {
        synchronized (tasks) {
            if (tasks.size() >= max) tasks.removeFirst();
            tasks.add(task);
            if (isRunning) return;
            isRunning = true;
        }
        try {
            executor.execute(this::run);
        } catch (RejectedExecutionException shutDown) {
            synchronized (tasks) {
                isRunning = false;
                tasks.clear();
            }
            throw shutDown;
        }
    }

    boolean isIdle() {
        synchronized (tasks) {
            return !isRunning;
        }
    }

    private @Nullable Runnable next() {
        synchronized (tasks) {
            Runnable task = tasks.poll();
            isRunning = task != null;
            return task;
        }
    }

    private void run() {
        for (Runnable task; (task = next()) != null; )
            try {
                task.run();
            } catch (RuntimeException | Error uncaught) {
                // A listener's error is the application's: its handler of uncaught exceptions gets it.
                Thread thread = Thread.currentThread();
                thread.getUncaughtExceptionHandler().uncaughtException(thread, uncaught);
            }
    }
}
