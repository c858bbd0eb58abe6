package io.noroshi.client;

import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** What the caller of a {@link Machine} carries out. */
sealed interface Effect {
    /** Opens a connection. {@code token}, {@code topics} and {@code lastEventId} are of server-sent events. */
    record Dial(
            int attempt,
            Transport transport,
            @Nullable String app,
            @Nullable String token,
            List<String> topics,
            @Nullable String lastEventId)
            implements Effect {}

    /** Writes a frame to the open WebSocket. */
    record Send(int attempt, String frame) implements Effect {}

    /** Ends a connection. Nothing is reported about it any more. */
    record Hangup(int attempt) implements Effect {}

    /** Asks the application for a token. {@link Machine#tokenArrived} has the answer. */
    record AskToken(int number, TokenRequest.Reason reason, @Nullable String previous) implements Effect {}

    /** Ends a request for a token. */
    record CancelToken(int number) implements Effect {}

    /** Sends an HTTP request. {@link Machine#answered} has the answer. */
    record Request(int number, Call call, String token) implements Effect {}

    /** Hands a message to the application. {@link Machine#settled} has the result. At most one is open. */
    record Pass(Message message) implements Effect {}

    record StateChanged(State state) implements Effect {}

    record RecoveryEnded(Recovered recovered) implements Effect {}

    record SubscriptionDenied(Denied denied) implements Effect {}

    record ItemsChangedBy(ItemsEvent event) implements Effect {}

    record UnreadChanged(ItemCounts counts) implements Effect {}

    /** An error that no call returns. */
    record Failed(NoroshiException error) implements Effect {}

    /** Stores the reports that wait, for the next process. */
    record Keep(List<String> ids) implements Effect {}

    /** A request of the device's API. */
    record Call(
            String method,
            String path,
            Map<String, String> query,
            @Nullable String ifNoneMatch,
            @Nullable String body) {
        static Call get(String path) {
            return new Call("GET", path, Map.of(), null, null);
        }

        static Call send(String method, String path, @Nullable Object body) {
            return new Call(method, path, Map.of(), null, body == null ? null : Json.write(body));
        }
    }

    /** The answer to a request. {@code error}: there was none. */
    record Response(
            @Nullable NoroshiException error,
            int status,
            @Nullable String etag,
            @Nullable String requestId,
            @Nullable Long retryAfterMs,
            String body) {
        static Response failed(NoroshiException error) {
            return new Response(error, 0, null, null, null, "");
        }
    }
}
