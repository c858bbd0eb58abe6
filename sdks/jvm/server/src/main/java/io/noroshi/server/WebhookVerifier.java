package io.noroshi.server;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.function.Function;
import java.util.function.Supplier;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.jspecify.annotations.Nullable;

/**
 * Verifies webhooks of the service: events, questions of topic rules, and pushes to a provider. The service signs them
 * by Standard Webhooks (https://www.standardwebhooks.com, version 1).
 *
 * <pre>{@code
 * WebhookVerifier verifier = new WebhookVerifier(System.getenv("NOROSHI_WEBHOOK_SECRET"));
 * Webhook webhook = verifier.verify(request::getHeader, request.getInputStream().readAllBytes());
 * }</pre>
 *
 * <p>Answer with status 401 if {@link #verify} throws: the service repeats the request. It drops events for good after
 * 400.
 */
public final class WebhookVerifier {
    private static final int SIGNATURES_MAX = 16;
    private static final int SECRET_BYTES_MIN = 24;
    private static final int SECRET_BYTES_MAX = 64;

    private final List<SecretKeySpec> keys = new ArrayList<>();
    private final Duration tolerance;
    private final Supplier<Instant> now;

    /** Verifies with a secret, {@code whsec_…}. While a secret is being replaced, pass both. */
    public WebhookVerifier(String... secrets) {
        this(List.of(secrets), Duration.ofMinutes(5));
    }

    /**
     * Verifies with secrets.
     *
     * @param secrets {@code whsec_…}
     * @param tolerance how far the timestamp may be off
     */
    public WebhookVerifier(List<String> secrets, Duration tolerance) {
        this(secrets, tolerance, Instant::now);
    }

    WebhookVerifier(List<String> secrets, Duration tolerance, Supplier<Instant> now) {
        if (secrets.isEmpty()) throw new IllegalArgumentException("secrets must not be empty");
        for (String secret : secrets) {
            byte[] bytes = secret.startsWith("whsec_") ? base64(secret.substring(6)) : null;
            if (bytes == null || bytes.length < SECRET_BYTES_MIN || bytes.length > SECRET_BYTES_MAX)
                throw new IllegalArgumentException("a secret must be \"whsec_\" and 24 to 64 bytes in base64");
            keys.add(new SecretKeySpec(bytes, "HmacSHA256"));
        }
        this.tolerance = tolerance;
        this.now = now;
    }

    /**
     * Checks signature and timestamp of a request.
     *
     * @param headers returns the value of a header by its lower-case name, in any case the request has, or {@code null}
     * @param body as it was received: JSON that was parsed and written again has other bytes
     * @throws NoroshiException with the code {@code bad_signature} or {@code bad_timestamp}
     */
    public Webhook verify(Function<String, @Nullable String> headers, byte[] body) {
        String id = headers.apply("webhook-id");
        String timestamp = headers.apply("webhook-timestamp");
        String signatures = headers.apply("webhook-signature");
        if (id == null || id.isEmpty() || timestamp == null || signatures == null)
            throw new NoroshiException(
                    "bad_signature", "a header is missing: webhook-id, webhook-timestamp or webhook-signature");
        if (!timestamp.matches("[0-9]{1,12}"))
            throw new NoroshiException("bad_timestamp", "webhook-timestamp is not a number of seconds");
        if (!isSigned(id + "." + timestamp + ".", body, signatures))
            throw new NoroshiException("bad_signature", "no signature is valid for this body");
        Instant sentAt = Instant.ofEpochSecond(Long.parseLong(timestamp));
        if (Duration.between(sentAt, now.get()).abs().compareTo(tolerance) > 0)
            throw new NoroshiException(
                    "bad_timestamp", "webhook-timestamp is more than " + tolerance.toSeconds() + " s off");
        try {
            String text = StandardCharsets.UTF_8
                    .newDecoder()
                    .decode(ByteBuffer.wrap(body))
                    .toString();
            return new Webhook(id, sentAt, text);
        } catch (CharacterCodingException cause) {
            throw new NoroshiException("bad_answer", "the body is not UTF-8", cause);
        }
    }

    private boolean isSigned(String head, byte[] body, String signatures) {
        boolean isValid = false;
        for (SecretKeySpec key : keys) {
            byte[] expected;
            try {
                Mac mac = Mac.getInstance("HmacSHA256");
                mac.init(key);
                mac.update(head.getBytes(StandardCharsets.UTF_8));
                expected = mac.doFinal(body);
            } catch (GeneralSecurityException cause) {
                throw new IllegalStateException(cause);
            }
            String[] all = signatures.split(" ", SIGNATURES_MAX + 1);
            for (int n = 0; n < Math.min(all.length, SIGNATURES_MAX); n++) {
                byte[] signature = all[n].startsWith("v1,") ? base64(all[n].substring(3)) : null;
                // Compares in constant time.
                if (signature != null && MessageDigest.isEqual(expected, signature)) isValid = true;
            }
        }
        return isValid;
    }

    private static byte @Nullable [] base64(String text) {
        try {
            return Base64.getDecoder().decode(text);
        } catch (IllegalArgumentException not) {
            return null;
        }
    }
}
