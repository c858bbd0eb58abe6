// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param notifications {@code notifications}
 * @param next Position of the next page.
 * @param searchedTo The list is complete back to this time. Absent on the last page.
 */
public record Notifications(
        List<ListedNotification> notifications,
        @Nullable String next,
        @JsonProperty("searched_to") @Nullable Instant searchedTo) {}
