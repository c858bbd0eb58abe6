// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server;

import io.noroshi.server.types.Message;
import io.noroshi.server.types.Topic;
import io.noroshi.server.types.Topics;
import io.noroshi.server.types.TopicsQuery;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Topics and their retained messages. */
public final class TopicsApi {
    private final Http http;

    TopicsApi(Http http) {
        this.http = http;
    }

    /**
     * List topics.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param query which ones
     */
    public Pages<Topic> list(TopicsQuery query) {
        return new Pages<>(query.after(), after -> http.call("GET", "/v1/topics")
                .query(query.parameters())
                .query("after", after)
                .send(Topics.class)
                .thenApply(page -> new Page<>(page.topics(), page.next())));
    }

    /** List topics. */
    public Pages<Topic> list() {
        return list(TopicsQuery.ALL);
    }

    /**
     * Subscribers and position of a topic.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param topic Name of the topic, percent-encoded: {@code news/jp} is {@code news%2Fjp}.
     */
    public Topic get(String topic) {
        return Http.await(getAsync(topic));
    }

    /** As {@link #get(String)}, without a wait. */
    public CompletableFuture<Topic> getAsync(String topic) {
        return http.call("GET", "/v1/topics/{topic}").path("topic", topic).send(Topic.class);
    }

    /**
     * The retained message.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param topic Name of the topic, percent-encoded: {@code news/jp} is {@code news%2Fjp}.
     */
    public Message retained(String topic) {
        return Http.await(retainedAsync(topic));
    }

    /** As {@link #retained(String)}, without a wait. */
    public CompletableFuture<Message> retainedAsync(String topic) {
        return http.call("GET", "/v1/topics/{topic}/retained")
                .path("topic", topic)
                .send(Message.class);
    }

    /**
     * Delete the retained message.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param topic Name of the topic, percent-encoded: {@code news/jp} is {@code news%2Fjp}.
     */
    public void deleteRetained(String topic) {
        Http.await(deleteRetainedAsync(topic));
    }

    /** As {@link #deleteRetained(String)}, without a wait. */
    public CompletableFuture<@Nullable Void> deleteRetainedAsync(String topic) {
        return http.call("DELETE", "/v1/topics/{topic}/retained")
                .path("topic", topic)
                .send();
    }
}
