// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param id UUIDv7: ids sort by the time they were accepted.
 * @param device One installed app: 1 to 128 bytes without control characters.
 * @param steps {@code steps}
 * @param inInbox It is in the device's inbox now.
 * @param connected The device is connected now.
 * @param subscribed The device has a durable subscription to its topic.
 * @param targetedBy What made it a notification for the device: its own name, its user, a durable subscription, a
 *     subscription of a session, a condition, everyone, the audience or the uploaded users of a campaign. {@code none}:
 *     it was not for the device. {@code unknown}: not recorded.
 * @param targeting A sentence about {@code targeted_by}. It also states what is no longer known, such as subscriptions
 *     that have ended.
 * @param reason Why it did not arrive, or not yet. If several reasons apply, it is the one that ended the notification,
 *     otherwise that of the push service, otherwise that of connection and inbox. Absent if it arrived, or if nothing
 *     that prevented it is known.
 * @param pushDueAt When the waiting push for the device is due. Absent if none waits.
 * @param pushTakenAt When a sender took this push; the push service has not answered yet. Absent while no sender has
 *     it.
 * @param attempts The attempts at pushes to the device that the node recorded ({@code push.record_retention}), oldest
 *     first: at most those of the 100 newest records. Absent if there is none.
 * @param trace Its trace, from the request's {@code traceparent} (docs/tracing.md). Absent if it was not traced.
 * @param summary Why the device received it or not: first connection and inbox, then push services.
 */
public record Trace(
        String id,
        String device,
        List<TraceStep> steps,
        @JsonProperty("in_inbox") boolean inInbox,
        boolean connected,
        boolean subscribed,
        @JsonProperty("targeted_by") TraceTargetedBy targetedBy,
        String targeting,
        @Nullable TraceReason reason,
        @JsonProperty("push_due_at") @Nullable Instant pushDueAt,
        @JsonProperty("push_taken_at") @Nullable Instant pushTakenAt,
        @Nullable List<PushAttempt> attempts,
        @Nullable String trace,
        String summary) {}
