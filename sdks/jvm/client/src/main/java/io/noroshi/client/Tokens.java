package io.noroshi.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/**
 * Tokens of the application: one request at a time, a new token before the old one expires or after a rejection.
 * CONTRACT.md T and K.
 */
final class Tokens {
    private static final long TIMEOUT_MS = 30_000;
    static final long NEVER = Long.MAX_VALUE;

    private final Machine machine;
    private @Nullable String current;
    private TokenRequest.Reason reason = TokenRequest.Reason.FIRST;
    private @Nullable String previous;
    private int number;
    private boolean isAsking;
    private List<BiConsumer<@Nullable String, @Nullable NoroshiException>> waiting = new ArrayList<>();
    /** When to ask for the next token. */
    long renewAtMs = NEVER;

    Tokens(Machine machine) {
        this.machine = machine;
    }

    /** The current token, or a new one. */
    void take(BiConsumer<@Nullable String, @Nullable NoroshiException> done) {
        if (current != null) done.accept(current, null);
        else ask(done);
    }

    /** Whether the client would use this token now. */
    boolean isCurrent(@Nullable String token) {
        return current != null && current.equals(token);
    }

    /** A new token. The current one stays in use until it arrives. */
    void renew(BiConsumer<@Nullable String, @Nullable NoroshiException> done) {
        if (current != null) {
            reason = TokenRequest.Reason.EXPIRING;
            previous = current;
        }
        ask(done);
    }

    /** The service rejected this token. */
    void reject(@Nullable String token) {
        if (token == null || !token.equals(current)) return;
        reason = TokenRequest.Reason.REJECTED;
        previous = token;
        current = null;
        renewAtMs = NEVER;
    }

    private void ask(BiConsumer<@Nullable String, @Nullable NoroshiException> done) {
        waiting.add(done);
        if (isAsking) return; // T2
        isAsking = true;
        number++;
        machine.effect(new Effect.AskToken(number, reason, previous));
        machine.timer(Timers.Id.TOKEN, TIMEOUT_MS, () -> {
            machine.effect(new Effect.CancelToken(number));
            settle(null, new NoroshiException("token_failed", "no token after 30 s"));
        });
    }

    void arrived(int answered, @Nullable String token, boolean isSignedOut, @Nullable Throwable cause) {
        if (!isAsking || answered != number) return;
        if (isSignedOut) settle(null, new NoroshiException(CloseReasons.SIGNED_OUT, "the token source returned null"));
        else if (cause != null)
            settle(null, new NoroshiException("token_failed", "the token source failed: " + cause, cause));
        else if (token == null || token.isEmpty())
            settle(null, new NoroshiException("token_failed", "the token source returned an empty token"));
        else if (token.equals(previous)) // T3
        settle(null, new NoroshiException("token_failed", "the token source returned the previous token"));
        else {
            current = token;
            renewAtMs = renewal(token);
            settle(token, null);
        }
    }

    private void settle(@Nullable String token, @Nullable NoroshiException error) {
        isAsking = false;
        machine.timers.clear(Timers.Id.TOKEN);
        List<BiConsumer<@Nullable String, @Nullable NoroshiException>> all = waiting;
        waiting = new ArrayList<>();
        all.forEach(done -> done.accept(token, error));
    }

    /** T4, K1 to K3. */
    private long renewal(String token) {
        Fields claims = claims(token);
        Double exp = claims == null ? null : claims.decimal("exp");
        if (claims == null || exp == null) return NEVER; // T8
        long here = machine.now();
        double end = exp * 1_000;
        Double iat = claims.decimal("iat");
        double issued = iat == null ? here : iat * 1_000;
        // K2: the clock is wrong if it contradicts a token that the application has just got.
        double left = here < issued || here >= end ? end - issued : end - here;
        if (left <= 0) return NEVER; // K3
        double margin = Math.min(60_000, left / 5);
        double wait = Math.max(left - margin * (1 + machine.random() / 2), Math.min(1_000, left / 2));
        return wait < 1e15 ? here + Math.round(wait) : NEVER;
    }

    /** {@code null} for a token that is no JWT. */
    private static @Nullable Fields claims(String token) {
        String[] parts = token.split("\\.", -1);
        if (parts.length < 2) return null;
        try {
            byte[] payload = Base64.getUrlDecoder().decode(parts[1].replaceAll("=+$", ""));
            return Fields.parse(new String(payload, StandardCharsets.UTF_8));
        } catch (IllegalArgumentException | Json.SyntaxError opaque) {
            return null;
        }
    }
}
