package io.noroshi.client;

import java.util.function.Consumer;

/** A subscription to a topic for as long as the client is connected. */
public final class Subscription {
    final NoroshiClient client;
    final Listeners<AsyncMessageListener> messages;
    final Listeners<Consumer<Recovered>> recovered = new Listeners<>(() -> {});
    final Listeners<Consumer<Denied>> denied = new Listeners<>(() -> {});
    private final String topic;
    volatile boolean recovers;

    Subscription(NoroshiClient client, String topic, boolean recovers) {
        this.client = client;
        this.topic = topic;
        this.recovers = recovers;
        messages = new Listeners<>(() -> client.subscriptionChanged(this));
    }

    /** The name of the topic. */
    public String topic() {
        return topic;
    }

    /** Adds a listener for the messages of the topic. */
    public Registration onMessage(MessageListener listener) {
        return messages.add(NoroshiClient.async(listener));
    }

    /** Adds a listener that needs no thread while it works. */
    public Registration onMessageAsync(AsyncMessageListener listener) {
        return messages.add(listener);
    }

    /** Adds a listener for the end of a recovery. */
    public Registration onRecovered(Consumer<Recovered> listener) {
        return recovered.add(listener);
    }

    /** Adds a listener for the refusal or the end of the subscription by topic rules. */
    public Registration onDenied(Consumer<Denied> listener) {
        return denied.add(listener);
    }

    /** Ends the subscription. */
    public void unsubscribe() {
        client.unsubscribe(this);
    }
}
