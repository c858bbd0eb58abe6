// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Map;

/**
 * Fixed variants, regardless of audience and weights. A device's entry takes precedence over its user's. At most 1,000
 * in total.
 *
 * @param users {@code users}
 * @param devices {@code devices}
 */
public record ExperimentOverrides(Map<String, String> users, Map<String, String> devices) {}
