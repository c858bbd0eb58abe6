package io.noroshi.client;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Reports that wait for the network: bounded, sent in batches, repeated. CONTRACT.md O1 to O6. */
final class Outbox {
    /** The service rejects all entries of a request for a bad one, or for their number (O4). */
    private static final Set<Integer> SPLITS = Set.of(400, 413, 422);

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
    /** The newest entry replaces earlier ones. */
    private final boolean isState;

    final LinkedHashSet<String> waiting = new LinkedHashSet<>();
    /** Entries of the next request: fewer than {@link #batch} while a bad one is sought (O4). */
    private int size;

    private int failures;
    private boolean isBusy;
    private boolean isClosed;
    private boolean willSend;

    Outbox(Machine machine, Timers.Id timer, String path, String field, int batch, int max, boolean keeps) {
        this(machine, timer, path, field, batch, max, keeps, false);
    }

    private Outbox(
            Machine machine,
            Timers.Id timer,
            String path,
            String field,
            int batch,
            int max,
            boolean keeps,
            boolean isState) {
        this.machine = machine;
        this.timer = timer;
        this.path = path;
        this.field = field;
        this.batch = batch;
        this.max = max;
        this.keeps = keeps;
        this.isState = isState;
        size = batch;
    }

    /** Reports a state, of which only the newest counts. */
    static Outbox ofState(Machine machine, Timers.Id timer, String path, String field) {
        return new Outbox(machine, timer, path, field, 1, 1, false, true);
    }

    void add(Iterable<String> entries) {
        for (String entry : entries) {
            waiting.add(entry);
            if (waiting.size() > max) {
                Iterator<String> oldest = waiting.iterator();
                oldest.next();
                oldest.remove();
                if (!isState)
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

    /** Forgets what was not sent. */
    void clear() {
        waiting.clear();
        machine.timers.clear(timer);
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
        List<String> entries = new ArrayList<>(Math.min(size, waiting.size()));
        for (String entry : waiting) {
            if (entries.size() == size) break;
            entries.add(entry);
        }
        machine.request(call(entries), (answer, error) -> {
            isBusy = false;
            if (error != null && canRepeat(error)) {
                if (isClosed || waiting.isEmpty()) return;
                long wait = Backoff.ms(failures++, machine.random()); // O3
                if (error instanceof ProblemException problem && problem.retryAfter() != null)
                    wait = Math.max(wait, problem.retryAfter().toMillis());
                machine.timer(timer, wait, this::send);
                return;
            }
            if (error instanceof ProblemException problem
                    && SPLITS.contains(problem.status())
                    && entries.size() > 1) { // O4
                size = entries.size() / 2;
                sendLater();
                return;
            }
            if (error != null) {
                size = batch;
                machine.fail(error);
            } else failures = 0;
            entries.forEach(waiting::remove);
            keep();
            sendLater();
        });
    }

    private Effect.Call call(List<String> entries) {
        return isState
                ? Effect.Call.send("PUT", path, Map.of(field, entries.get(0)))
                : Effect.Call.send("POST", path, Map.of(field, entries));
    }

    /** Whether another attempt can help. */
    private static boolean canRepeat(NoroshiException error) {
        if (!(error instanceof ProblemException problem)) return true;
        int status = problem.status();
        return status >= 500 || status == 401 || status == 408 || status == 429;
    }
}
