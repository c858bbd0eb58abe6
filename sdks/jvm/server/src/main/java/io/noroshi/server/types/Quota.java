// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param quota {@code quota}
 * @param limit Null: unlimited.
 * @param source {@code app}: its own limit; {@code default}: the node's.
 * @param used Null if not counted. For a rate: the used tokens.
 * @param refused Rejections by this node since its start.
 * @param scope {@code node}: enforced per node; {@code store}: enforced across all nodes that share a store.
 */
public record Quota(
        QuotaQuota quota,
        @Nullable Long limit,
        QuotaSource source,
        @Nullable Long used,
        long refused,
        QuotaScope scope) {}
