// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param from The begin of the first step, a multiple of the step.
 * @param until The end of the last step.
 * @param stepS Seconds of a step.
 * @param coveredS How many seconds of each step were measured, by at least one node. 0: a gap.
 * @param series {@code series}
 * @param nodes Every node that wrote something in the range, with the times for which it wrote nothing. {@code null}
 *     for an app.
 * @param nodesCount Nodes that wrote something in the range.
 * @param missing Times for which one or more of these nodes wrote nothing.
 */
public record Series(
        Instant from,
        Instant until,
        @JsonProperty("step_s") long stepS,
        @JsonProperty("covered_s") List<Long> coveredS,
        List<SeriesFigure> series,
        @Nullable List<SeriesNode> nodes,
        @JsonProperty("nodes_count") long nodesCount,
        List<SeriesSpan> missing) {}
