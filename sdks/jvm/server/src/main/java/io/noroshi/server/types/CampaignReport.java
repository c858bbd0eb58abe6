// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;

/**
 * Results by variant, in the order of the experiment.
 *
 * @param name {@code name}
 * @param control The variant that the others are compared with.
 * @param variants {@code variants}
 */
public record CampaignReport(String name, String control, List<CampaignVariantReport> variants) {}
