package io.noroshi.client;

import org.jspecify.annotations.Nullable;

/** Gets tokens of the device: device tokens, or JWTs of the app. */
@FunctionalInterface
public interface TokenSource {
    /**
     * Called on a thread of the client's executor, which may wait for the network. Its thread is interrupted after 30
     * seconds.
     *
     * @param request why a token is needed
     * @return a token; {@code null} if nobody is signed in: the client then stays closed with the reason
     *     {@code signed_out}
     * @throws Exception if there is no token now: the client tries again later
     */
    @Nullable
    String token(TokenRequest request) throws Exception;
}
