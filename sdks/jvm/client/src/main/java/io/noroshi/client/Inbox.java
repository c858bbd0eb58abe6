package io.noroshi.client;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/** The notification centre of the user. */
public final class Inbox {
    private final NoroshiClient client;

    Inbox(NoroshiClient client) {
        this.client = client;
    }

    /** A page of items, newest first. */
    public CompletableFuture<ItemPage> list(ItemQuery query) {
        Effect.Call call = new Effect.Call("GET", "/v1/me/items", query.query(), null, null);
        return client.call((machine, now, done) -> machine.fetch(
                now, call, fields -> new ItemPage(fields.objects("items", Item::of), fields.text("next")), done));
    }

    /** The last known counts of unread items; empty until the service has reported them. */
    public Optional<ItemCounts> unread() {
        return client.counts();
    }

    /** Reads the counts of unread items. Every new session does so if there is a listener for them. */
    public CompletableFuture<ItemCounts> refresh() {
        return client.call(Machine::readCounts);
    }

    public CompletableFuture<ItemsChanged> markRead(Which which) {
        return change("read", which);
    }

    public CompletableFuture<ItemsChanged> markUnread(Which which) {
        return change("unread", which);
    }

    public CompletableFuture<ItemsChanged> archive(Which which) {
        return change("archive", which);
    }

    public CompletableFuture<ItemsChanged> unarchive(Which which) {
        return change("unarchive", which);
    }

    private CompletableFuture<ItemsChanged> change(String action, Which which) {
        return change(which.bodies(action), 0, 0);
    }

    private CompletableFuture<ItemsChanged> change(List<Map<String, Object>> bodies, int index, long before) {
        CompletableFuture<ItemsChanged> one =
                client.call((machine, now, done) -> machine.changeItems(now, bodies.get(index), done));
        if (bodies.size() == 1) return one;
        return one.thenCompose(answer -> {
            long changed = before + answer.changed();
            return index + 1 == bodies.size()
                    ? CompletableFuture.completedFuture(new ItemsChanged(changed, answer.counts()))
                    : change(bodies, index + 1, changed);
        });
    }
}
