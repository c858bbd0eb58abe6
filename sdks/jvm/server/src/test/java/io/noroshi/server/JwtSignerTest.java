package io.noroshi.server;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.Signature;
import java.security.spec.ECGenParameterSpec;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class JwtSignerTest {
    private static final Instant NOW = Instant.ofEpochSecond(1_767_225_600);

    private static String decode(String part) {
        return new String(Base64.getUrlDecoder().decode(part), StandardCharsets.UTF_8);
    }

    @Test
    void signsWithTheSecret() {
        JwtSigner signer = JwtSigner.hs256("a-secret-of-at-least-thirty-two-bytes")
                .audience("shop")
                .issuer("me")
                .lifetime(Duration.ofMinutes(10))
                .now(() -> NOW)
                .build();
        String[] parts =
                signer.sign("u1", "d1", List.of("news"), Map.of("team", "a")).split("\\.");
        assertEquals("{\"alg\":\"HS256\",\"typ\":\"JWT\"}", decode(parts[0]));
        assertEquals(
                "{\"team\":\"a\",\"iss\":\"me\",\"aud\":\"shop\",\"sub\":\"u1\",\"device\":\"d1\",\"topics\":[\"news\"],"
                        + "\"iat\":1767225600,\"exp\":1767226200}",
                decode(parts[1]));
        assertThrows(IllegalArgumentException.class, () -> JwtSigner.hs256("short"));
        assertThrows(IllegalArgumentException.class, () -> signer.sign("", "d1"));
        assertThrows(IllegalArgumentException.class, () -> signer.sign("u1", "d".repeat(129)));
    }

    @Test
    void signsWithPrivateKeys() throws Exception {
        KeyPairGenerator elliptic = KeyPairGenerator.getInstance("EC");
        elliptic.initialize(new ECGenParameterSpec("secp256r1"));
        verify(elliptic.generateKeyPair(), "ES256", "SHA256withECDSAinP1363Format");
        KeyPairGenerator rsa = KeyPairGenerator.getInstance("RSA");
        rsa.initialize(2048);
        verify(rsa.generateKeyPair(), "RS256", "SHA256withRSA");
        elliptic.initialize(new ECGenParameterSpec("secp384r1"));
        assertThrows(
                IllegalArgumentException.class,
                () -> JwtSigner.privateKey(elliptic.generateKeyPair().getPrivate()));
    }

    private static void verify(KeyPair pair, String algorithm, String name) throws Exception {
        String token =
                JwtSigner.privateKey(pair.getPrivate()).keyId("k1").build().sign("u1", "d1");
        String[] parts = token.split("\\.");
        assertEquals("{\"alg\":\"" + algorithm + "\",\"typ\":\"JWT\",\"kid\":\"k1\"}", decode(parts[0]));
        Signature signature = Signature.getInstance(name);
        signature.initVerify(pair.getPublic());
        signature.update((parts[0] + "." + parts[1]).getBytes(StandardCharsets.US_ASCII));
        assertTrue(signature.verify(Base64.getUrlDecoder().decode(parts[2])));
    }
}
