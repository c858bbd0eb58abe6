package io.noroshi.server;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * One attempt at a request, after it ended: for logs and metrics.
 *
 * @param method such as {@code GET}
 * @param path the path of the API, without values: <code>/v1/notifications/&#123;id&#125;</code>
 * @param requestId the id of the request in the service's log
 * @param attempt from 1
 * @param duration until the answer was read
 * @param status {@code null} if there was no answer
 * @param error {@code null} if the attempt succeeded
 * @param retryIn after how long the next attempt follows; {@code null} if none does
 */
public record Attempt(
        String method,
        String path,
        String requestId,
        int attempt,
        Duration duration,
        @Nullable Integer status,
        @Nullable NoroshiException error,
        @Nullable Duration retryIn) {}
