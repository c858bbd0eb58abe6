// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;

/**
 * A part of an answer.
 *
 * @param app {@code app}
 * @param quotas {@code quotas}
 */
public record Quotas(String app, List<Quota> quotas) {}
