// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * What one user of an uploaded audience gets.
 *
 * @param user {@code user}
 * @param variables Values of placeholders.
 * @param notification {@code notification}
 * @param data {@code data}
 */
public record CampaignRecipient(
        String user,
        @Nullable Map<String, String> variables,
        @Nullable Map<String, @Nullable Object> notification,
        @Nullable Object data) {}
