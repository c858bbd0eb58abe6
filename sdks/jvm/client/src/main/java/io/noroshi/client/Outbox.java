package io.noroshi.client;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;

/** Reports that wait for the network: bounded, sent in batches, repeated. CONTRACT.md O1 to O6. */
final class Outbox {
    private final Machine machine;
    private final Timers.Id timer;
    private final String path;
    /** The field of the body that has the entries. */
    private final String field;
    /** Entries of a request. */
    private final int batch;
    /** Entries that wait. */
    private final int max;

    private final boolean keeps;
    final LinkedHashSet<String> waiting = new LinkedHashSet<>();
    private int failures;
    private boolean isBusy;
    private boolean isClosed;
    private boolean willSend;

    Outbox(Machine machine, Timers.Id timer, String path, String field, int batch, int max, boolean keeps) {
        this.machine = machine;
        this.timer = timer;
        this.path = path;
        this.field = field;
        this.batch = batch;
        this.max = max;
        this.keeps = keeps;
    }

    void add(Iterable<String> entries) {
        for (String entry : entries) {
            waiting.add(entry);
            if (waiting.size() > max) {
                Iterator<String> oldest = waiting.iterator();
                oldest.next();
                oldest.remove();
                machine.fail(new NoroshiException("queue_full", "more than " + max + " reports wait for " + path));
            }
        }
        keep();
        if (!machine.timers.isSet(timer)) sendLater();
    }

    private void keep() {
        if (keeps) machine.effect(new Effect.Keep(List.copyOf(waiting)));
    }

    /** Sends at the end of this input. */
    private void sendLater() {
        if (willSend || isBusy || waiting.isEmpty()) return;
        willSend = true;
        machine.later(() -> {
            willSend = false;
            send();
        });
    }

    /** The network has returned. */
    void wake() {
        if (machine.timers.isSet(timer)) send();
    }

    void open() {
        isClosed = false;
        sendLater();
    }

    /** Sends what was not tried, and nothing later. */
    void close() {
        if (!machine.timers.isSet(timer)) send();
        isClosed = true;
        machine.timers.clear(timer);
    }

    private void send() {
        if (isBusy || isClosed || waiting.isEmpty()) return;
        machine.timers.clear(timer);
        isBusy = true;
        List<String> entries = new ArrayList<>(Math.min(batch, waiting.size()));
        for (String entry : waiting) {
            if (entries.size() == batch) break;
            entries.add(entry);
        }
        machine.request(Effect.Call.send("POST", path, Map.of(field, entries)), (answer, error) -> {
            isBusy = false;
            if (error != null && canRepeat(error)) {
                if (isClosed) return;
                long wait = Backoff.ms(failures++, machine.random()); // O3
                if (error instanceof ProblemException problem && problem.retryAfter() != null)
                    wait = Math.max(wait, problem.retryAfter().toMillis());
                machine.timer(timer, wait, this::send);
                return;
            }
            if (error != null) machine.fail(error); // O4
            else failures = 0;
            entries.forEach(waiting::remove);
            keep();
            sendLater();
        });
    }

    /** Whether another attempt can help. */
    private static boolean canRepeat(NoroshiException error) {
        if (!(error instanceof ProblemException problem)) return true;
        int status = problem.status();
        return status >= 500 || status == 401 || status == 408 || status == 429;
    }
}
