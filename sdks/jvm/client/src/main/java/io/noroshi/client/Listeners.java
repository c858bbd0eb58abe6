package io.noroshi.client;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The listeners of a client, or of a topic. */
final class Listeners<T> {
    private final CopyOnWriteArrayList<T> all = new CopyOnWriteArrayList<>();
    private final Runnable changed;

    Listeners(Runnable changed) {
        this.changed = changed;
    }

    Registration add(T listener) {
        all.add(listener);
        changed.run();
        return () -> {
            if (all.remove(listener)) changed.run();
        };
    }

    boolean isEmpty() {
        return all.isEmpty();
    }

    List<T> all() {
        return List.copyOf(all);
    }

    static <E> void call(Listeners<Consumer<E>> listeners, E event) {
        Throwable first = null;
        for (Consumer<E> listener : listeners.all)
            try {
                listener.accept(event);
            } catch (RuntimeException | Error error) {
                if (first == null) first = error;
            }
        if (first instanceof RuntimeException exception) throw exception;
        if (first instanceof Error error) throw error;
    }

    /** Calls all. The stage fails if one of them failed; the others are called all the same. */
    static CompletionStage<@Nullable Void> handle(List<AsyncMessageListener> listeners, Message message) {
        List<CompletableFuture<?>> results = new ArrayList<>();
        for (AsyncMessageListener listener : listeners)
            try {
                results.add(listener.handle(message).toCompletableFuture());
            } catch (Throwable error) {
                results.add(CompletableFuture.failedFuture(error));
            }
        return CompletableFuture.allOf(results.toArray(new CompletableFuture<?>[0]));
    }
}
