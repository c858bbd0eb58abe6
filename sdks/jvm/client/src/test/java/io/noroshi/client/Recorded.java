package io.noroshi.client;

import io.noroshi.testing.Node;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.Consumer;

/** A client with a record of what it showed. */
final class Recorded implements AutoCloseable {
    final String device;
    final NoroshiClient client;
    final List<Object> shown = list();
    final List<State> states = list();
    final List<Recovered> recovered = list();
    final List<NoroshiException> errors = list();
    final List<TokenRequest.Reason> asked = list();

    private static <T> List<T> list() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    Recorded(String url, String device, long lifetimeSeconds, Consumer<NoroshiClient.Builder> configure) {
        this(url, device, configure, request -> Node.jwt(device, lifetimeSeconds));
    }

    Recorded(String url, String device, Consumer<NoroshiClient.Builder> configure, TokenSource tokens) {
        this.device = device;
        NoroshiClient.Builder builder = NoroshiClient.builder(url, request -> {
            asked.add(request.reason());
            return tokens.token(request);
        });
        configure.accept(builder);
        client = builder.build();
        client.onMessage(message -> shown.add(message.data()));
        client.onState(states::add);
        client.onRecovered(recovered::add);
        client.onError(errors::add);
    }

    static Recorded connected(String url, String device) {
        Recorded one = new Recorded(url, device, 3_600, builder -> {});
        one.client.connect();
        one.awaitConnected();
        return one;
    }

    String user() {
        return "user-of-" + device;
    }

    void awaitConnected() {
        Node.until(device + " to be connected", () -> client.state().isConnected());
    }

    void awaitShown(int count) {
        Node.until(device + " to show " + count + " messages, not " + shown, () -> shown.size() >= count);
    }

    boolean hadReason(String reason) {
        return List.copyOf(states).stream().anyMatch(state -> reason.equals(state.reason()));
    }

    static Consumer<NoroshiClient.Builder> pings(int seconds) {
        return builder -> builder.pingInterval(Duration.ofSeconds(seconds));
    }

    @Override
    public void close() {
        client.close();
    }
}
