package io.noroshi.server;

import com.fasterxml.jackson.annotation.JsonAnySetter;
import com.fasterxml.jackson.annotation.JsonCreator;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.core.JsonProcessingException;
import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A verified request of the service.
 *
 * @param id {@code webhook-id}: the same if the service sends the same request again
 * @param sentAt by the clock of the service
 * @param body as it was received
 */
public record Webhook(String id, Instant sentAt, String body) {
    /** The body as JSON. */
    public <T> T json(Class<T> type) {
        return read(body, type);
    }

    /** The body as lines of JSON, as the event log sends it. */
    public List<EventLine> events() {
        return body.lines()
                .filter(line -> !line.isEmpty())
                .map(line -> read(line, EventLine.class))
                .toList();
    }

    /** The JSON of an answer, such as {@link TopicAnswer}. */
    public static String answer(Object answer) {
        try {
            return Json.MAPPER.writeValueAsString(answer);
        } catch (JsonProcessingException cause) {
            throw new IllegalArgumentException("the answer is not JSON: " + cause.getMessage(), cause);
        }
    }

    private static <T> T read(String text, Class<T> type) {
        try {
            return Json.MAPPER.readValue(text, type);
        } catch (JsonProcessingException cause) {
            throw new NoroshiException(
                    "bad_answer", "the body is not what the service promises: " + cause.getMessage(), cause);
        }
    }

    /** A line of the event log. {@code node}, {@code run} and {@code n} identify it: the service may send it twice. */
    public static final class EventLine {
        private final Map<String, @Nullable Object> fields = new LinkedHashMap<>();

        @JsonCreator
        EventLine() {}

        @JsonAnySetter
        void set(String name, @Nullable Object value) {
            fields.put(name, value);
        }

        /** The name of the event. */
        public String event() {
            return String.valueOf(fields.get("event"));
        }

        /** When it happened. */
        public Instant at() {
            return Instant.parse(String.valueOf(fields.get("at")));
        }

        /** The same for each repetition of the line. */
        public String key() {
            return fields.get("node") + "/" + fields.get("run") + "/" + fields.get("n");
        }

        /** All fields, as values of the platform. */
        public Map<String, @Nullable Object> fields() {
            return Collections.unmodifiableMap(fields);
        }
    }

    /**
     * May a device subscribe to a topic, or publish to it?
     *
     * @param app the app
     * @param device the device
     * @param user the user of the device, if it has one
     * @param action {@code subscribe} or {@code publish}
     * @param topic the topic, or a filter of MQTT
     * @param protocol the protocol of the device
     */
    public record TopicQuestion(
            String app, String device, @Nullable String user, String action, String topic, String protocol) {}

    /**
     * The answer to a {@link TopicQuestion}.
     *
     * @param allow whether it may
     * @param expiresIn how long the answer is valid, at most a day; {@code null}: as the app's topic rules say
     */
    public record TopicAnswer(boolean allow, @JsonProperty("expires_in") @Nullable Duration expiresIn) {}

    /**
     * Pushes to a provider behind a webhook.
     *
     * @param type the type of the request
     * @param provider the name of the provider
     * @param messages the messages
     */
    public record PushBatch(String type, String provider, List<PushMessage> messages) {}

    /**
     * A message of a {@link PushBatch}.
     *
     * @param notificationId the notification
     * @param notification the visible part
     * @param data what the provider of the message sent
     * @param urgency its urgency
     * @param collapseKey replaces an earlier message with the same key
     * @param expiresAt when it is of no use any more
     * @param options {@code push.webhook} of the request
     * @param recipients who gets it
     */
    public record PushMessage(
            @JsonProperty("notification_id") String notificationId,
            @Nullable Map<String, @Nullable Object> notification,
            @Nullable Object data,
            String urgency,
            @JsonProperty("collapse_key") @Nullable String collapseKey,
            @JsonProperty("expires_at") Instant expiresAt,
            @Nullable Map<String, @Nullable Object> options,
            List<PushRecipient> recipients) {}

    /**
     * A recipient of a {@link PushMessage}.
     *
     * @param id the same for each attempt: do not deliver twice
     * @param token the push token
     * @param device the device
     * @param user the user
     */
    public record PushRecipient(String id, String token, @Nullable String device, @Nullable String user) {}

    /**
     * The answer to a {@link PushBatch}. Recipients that it does not name are accepted.
     *
     * @param results by recipient
     */
    public record PushResults(List<PushResult> results) {}

    /**
     * The result for one recipient.
     *
     * @param id the recipient
     * @param result {@code accepted}, {@code invalid_token}, {@code suspect_token}, {@code retry} or {@code rejected}
     * @param retryAfter seconds, with {@code retry}
     * @param reason for people
     */
    public record PushResult(
            String id,
            String result,
            @JsonProperty("retry_after") @Nullable Integer retryAfter,
            @Nullable String reason) {}
}
