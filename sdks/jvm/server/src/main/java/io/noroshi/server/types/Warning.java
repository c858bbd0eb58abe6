// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

/**
 * What a push service of the app does not show.
 *
 * @param service {@code service}
 * @param field Its path in the request.
 * @param warning {@code warning}
 */
public record Warning(PushService service, String field, String warning) {}
