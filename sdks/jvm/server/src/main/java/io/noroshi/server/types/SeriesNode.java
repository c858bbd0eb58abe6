// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;

/**
 * A part of an answer.
 *
 * @param name {@code name}
 * @param missing {@code missing}
 */
public record SeriesNode(String name, List<SeriesSpan> missing) {}
