package io.noroshi.server;

import com.fasterxml.jackson.core.JsonProcessingException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.interfaces.ECPrivateKey;
import java.security.interfaces.RSAPrivateKey;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.jspecify.annotations.Nullable;

/**
 * Signs app JWTs, with which devices log in, without a request to the service. The first use of a token creates its
 * device.
 *
 * <pre>{@code
 * JwtSigner jwts = JwtSigner.hs256(System.getenv("NOROSHI_JWT_SECRET")).audience("shop").build();
 * String token = jwts.sign("u1", "phone-1");
 * }</pre>
 */
public final class JwtSigner {
    private static final int SECRET_BYTES_MIN = 32;
    private static final int USER_BYTES_MAX = 255;
    private static final int DEVICE_BYTES_MAX = 128;

    private interface Sign {
        byte[] sign(byte[] text) throws GeneralSecurityException;
    }

    private final Builder options;

    private JwtSigner(Builder options) {
        this.options = options;
    }

    /** Signs with the app's secret, which has at least 32 bytes. */
    public static Builder hs256(String secret) {
        return hs256(secret.getBytes(StandardCharsets.UTF_8));
    }

    /** Signs with the app's secret, which has at least 32 bytes. */
    public static Builder hs256(byte[] secret) {
        if (secret.length < SECRET_BYTES_MIN)
            throw new IllegalArgumentException("secret must have at least 32 bytes (RFC 7518 §3.2)");
        SecretKeySpec key = new SecretKeySpec(secret, "HmacSHA256");
        return new Builder("HS256", text -> {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(key);
            return mac.doFinal(text);
        });
    }

    /** Signs with an RSA key (RS256) or a P-256 key (ES256). The app knows the public half by its JWKS. */
    public static Builder privateKey(PrivateKey key) {
        boolean isRsa = key instanceof RSAPrivateKey;
        if (!isRsa
                && !(key instanceof ECPrivateKey elliptic
                        && elliptic.getParams().getOrder().bitLength() == 256))
            throw new IllegalArgumentException("the key must be of RSA or P-256");
        return new Builder(isRsa ? "RS256" : "ES256", text -> {
            // RFC 7518 §3.4: r and s as 64 bytes, not DER.
            Signature signature = Signature.getInstance(isRsa ? "SHA256withRSA" : "SHA256withECDSAinP1363Format");
            signature.initSign(key);
            signature.update(text);
            return signature.sign();
        });
    }

    /** A token of a device. */
    public String sign(String user, String device) {
        return sign(user, device, null, Map.of());
    }

    /**
     * A token of a device.
     *
     * @param user 1 to 255 bytes
     * @param device the id of one installed app: 1 to 128 bytes
     * @param topics durable subscriptions; {@code null}: the token states none
     * @param claims more claims, for example for topic rules
     */
    public String sign(
            String user, String device, @Nullable List<String> topics, Map<String, ? extends @Nullable Object> claims) {
        check("user", user, USER_BYTES_MAX);
        check("device", device, DEVICE_BYTES_MAX);
        Map<String, @Nullable Object> header = new LinkedHashMap<>();
        header.put("alg", options.algorithm);
        header.put("typ", "JWT");
        if (options.keyId != null) header.put("kid", options.keyId);
        Map<String, @Nullable Object> payload = new LinkedHashMap<>(claims);
        if (options.issuer != null) payload.put("iss", options.issuer);
        if (options.audience != null) payload.put("aud", options.audience);
        payload.put("sub", user);
        payload.put("device", device);
        if (topics != null) payload.put("topics", topics);
        long now = options.now.get().getEpochSecond();
        payload.put("iat", now);
        payload.put("exp", now + options.lifetime.toSeconds());
        try {
            String text =
                    part(Json.MAPPER.writeValueAsBytes(header)) + "." + part(Json.MAPPER.writeValueAsBytes(payload));
            return text + "." + part(options.sign.sign(text.getBytes(StandardCharsets.US_ASCII)));
        } catch (JsonProcessingException cause) {
            throw new IllegalArgumentException("the claims are not JSON: " + cause.getMessage(), cause);
        } catch (GeneralSecurityException cause) {
            throw new IllegalStateException("cannot sign: " + cause.getMessage(), cause);
        }
    }

    private static String part(byte[] bytes) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }

    private static void check(String name, String text, int max) {
        int length = text.getBytes(StandardCharsets.UTF_8).length;
        if (length < 1 || length > max) throw new IllegalArgumentException(name + " must have 1 to " + max + " bytes");
    }

    /** Configures a {@link JwtSigner}. */
    public static final class Builder {
        private final String algorithm;
        private final Sign sign;
        private @Nullable String keyId;
        private @Nullable String issuer;
        private @Nullable String audience;
        private Duration lifetime = Duration.ofHours(1);
        private Supplier<Instant> now = Instant::now;

        private Builder(String algorithm, Sign sign) {
            this.algorithm = algorithm;
            this.sign = sign;
        }

        /** {@code kid}: names the key in the app's JWKS. */
        public Builder keyId(@Nullable String keyId) {
            this.keyId = keyId;
            return this;
        }

        /** {@code iss}: required if the app declares an issuer. */
        public Builder issuer(@Nullable String issuer) {
            this.issuer = issuer;
            return this;
        }

        /**
         * {@code aud}: the app's name, or the audience that it declares. It tells the node which app the token belongs
         * to.
         */
        public Builder audience(@Nullable String audience) {
            this.audience = audience;
            return this;
        }

        /** Until a token expires. The session of a device ends then, unless it renews the token. Default: an hour. */
        public Builder lifetime(Duration lifetime) {
            if (lifetime.toSeconds() < 1) throw new IllegalArgumentException("lifetime must be at least a second");
            this.lifetime = lifetime;
            return this;
        }

        Builder now(Supplier<Instant> now) {
            this.now = now;
            return this;
        }

        public JwtSigner build() {
            return new JwtSigner(this);
        }
    }
}
