package io.noroshi.server;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class WebhookVerifierTest {
    /** The example of the specification. */
    private static final String SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    private static final String BODY = "{\"test\": 2432232314}";
    private static final Instant SENT = Instant.ofEpochSecond(1_614_265_330);

    private final Map<String, String> headers = new HashMap<>(Map.of(
            "webhook-id",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp",
            "1614265330",
            "webhook-signature",
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));

    private static WebhookVerifier verifier(Instant now, String... secrets) {
        return new WebhookVerifier(List.of(secrets), Duration.ofMinutes(5), () -> now);
    }

    private String code(WebhookVerifier verifier, String body) {
        return assertThrows(
                        NoroshiException.class,
                        () -> verifier.verify(headers::get, body.getBytes(StandardCharsets.UTF_8)))
                .code();
    }

    @Test
    void acceptsTheExampleOfTheSpecification() {
        Webhook webhook = verifier(SENT, SECRET).verify(headers::get, BODY.getBytes(StandardCharsets.UTF_8));
        assertEquals("msg_p5jXN8AQM9LWM0D4loKWxJek", webhook.id());
        assertEquals(SENT, webhook.sentAt());
        assertEquals(BODY, webhook.body());
    }

    @Test
    void acceptsAnyOfSeveralSecretsAndSignatures() {
        String other = "whsec_" + Base64.getEncoder().encodeToString(new byte[24]);
        headers.computeIfPresent("webhook-signature", (name, value) -> "v1,AAAA v2,x " + value);
        verifier(SENT, other, SECRET).verify(headers::get, BODY.getBytes(StandardCharsets.UTF_8));
        assertEquals("bad_signature", code(verifier(SENT, other), BODY));
    }

    @Test
    void rejectsOtherBodiesHeadersAndTimes() {
        assertEquals("bad_signature", code(verifier(SENT, SECRET), BODY + " "));
        assertEquals("bad_timestamp", code(verifier(SENT.plusSeconds(301), SECRET), BODY));
        assertEquals("bad_timestamp", code(verifier(SENT.minusSeconds(301), SECRET), BODY));
        verifier(SENT.plusSeconds(300), SECRET).verify(headers::get, BODY.getBytes(StandardCharsets.UTF_8));
        headers.put("webhook-id", "another");
        assertEquals("bad_signature", code(verifier(SENT, SECRET), BODY));
        headers.put("webhook-timestamp", "-1");
        assertEquals("bad_timestamp", code(verifier(SENT, SECRET), BODY));
        headers.remove("webhook-signature");
        assertEquals("bad_signature", code(verifier(SENT, SECRET), BODY));
        assertThrows(IllegalArgumentException.class, () -> new WebhookVerifier("secret"));
        assertThrows(IllegalArgumentException.class, () -> new WebhookVerifier());
    }

    @Test
    void readsBodies() {
        Webhook events = new Webhook(
                "1",
                SENT,
                "{\"v\":1,\"at\":\"2026-01-01T00:00:00Z\",\"node\":\"a\",\"run\":1,\"n\":2,\"event\":\"x\"}\n{\"event\":\"y\"}\n");
        assertEquals(
                List.of("x", "y"),
                events.events().stream().map(Webhook.EventLine::event).toList());
        assertEquals("a/1/2", events.events().get(0).key());
        Webhook question = new Webhook(
                "2",
                SENT,
                "{\"app\":\"shop\",\"device\":\"d1\",\"user\":null,\"action\":\"subscribe\",\"topic\":\"t\",\"protocol\":\"native\"}");
        Webhook.TopicQuestion asked = question.json(Webhook.TopicQuestion.class);
        assertEquals("subscribe", asked.action());
        assertNull(asked.user());
        assertEquals(
                "{\"allow\":true,\"expires_in\":\"300s\"}",
                Webhook.answer(new Webhook.TopicAnswer(true, Duration.ofMinutes(5))));
        Webhook push = new Webhook(
                "3",
                SENT,
                "{\"type\":\"push.batch\",\"provider\":\"mail\",\"messages\":[{\"notification_id\":\"n\",\"urgency\":\"normal\","
                        + "\"expires_at\":\"2026-01-15T10:30:00.000Z\",\"recipients\":[{\"id\":\"r\",\"token\":\"t\"}]}]}");
        assertEquals(
                "r",
                push.json(Webhook.PushBatch.class)
                        .messages()
                        .get(0)
                        .recipients()
                        .get(0)
                        .id());
    }
}
