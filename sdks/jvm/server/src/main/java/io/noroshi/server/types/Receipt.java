// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param id UUIDv7: ids sort by the time they were accepted.
 * @param targets Number of distinct users or devices in the request. Null for topics, conditions and everyone.
 * @param warnings What push services of the app do not show of the notification's typed fields. Absent if there is
 *     nothing to warn of, and with {@code push.mode} {@code never}. Fronts of cells do not know it.
 */
public record Receipt(String id, @Nullable Long targets, @Nullable List<Warning> warnings) {}
