package io.noroshi.client;

import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** The preferences of the device, or those of its user. */
public final class PreferencesApi {
    private final NoroshiClient client;
    private final String path;

    PreferencesApi(NoroshiClient client, String path) {
        this.client = client;
        this.path = path;
    }

    public CompletableFuture<Preferences> get() {
        return preferences(Effect.Call.get(path));
    }

    /** Replaces them; returns them as stored. */
    public CompletableFuture<Preferences> set(Preferences preferences) {
        return preferences(Effect.Call.send("PUT", path, preferences.json()));
    }

    public CompletableFuture<@Nullable Void> delete() {
        return client.call((machine, now, done) -> machine.request(
                now, Effect.Call.send("DELETE", path, null), (answer, error) -> done.accept(null, error)));
    }

    private CompletableFuture<Preferences> preferences(Effect.Call call) {
        return client.call((machine, now, done) ->
                machine.fetch(now, call, fields -> Objects.requireNonNull(Preferences.of(fields)), done));
    }
}
