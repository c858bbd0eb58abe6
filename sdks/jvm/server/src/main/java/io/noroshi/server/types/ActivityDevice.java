// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param id The id of the activity: 1 to 64 letters, digits and {@code .}, {@code _}, {@code -}.
 * @param device One installed app: 1 to 128 bytes without control characters.
 * @param state {@code summary} explains it.
 * @param version The newest version that was sent to the device; 0: none.
 * @param currentVersion {@code current_version}
 * @param waiting The device waits for the newest version.
 * @param dueAt When it is sent at the earliest.
 * @param sentAt When the device was last included in a send.
 * @param startedVersion The version with which a push started the activity on the device.
 * @param outcome Of the start, or of the last failure.
 * @param reason {@code reason}
 * @param at RFC 3339, UTC.
 * @param connected {@code connected}
 * @param targetedBy What made it an activity for the device: its own name, its user, a durable subscription, a
 *     condition, everyone, or a token of the activity that the device reported. {@code none}: it is not for the device.
 * @param targeting A sentence about {@code targeted_by}.
 * @param cause Why no push brought the newest state to the device, or not yet. Absent if one did, or if nothing that
 *     prevented it is known.
 * @param summary What {@code state} means, and why the device lacks the newest state.
 * @param attempts The attempts at pushes to the device that the node recorded, oldest first. Absent if there is none.
 */
public record ActivityDevice(
        String id,
        String device,
        ActivityDeviceState state,
        long version,
        @JsonProperty("current_version") long currentVersion,
        boolean waiting,
        @JsonProperty("due_at") @Nullable Instant dueAt,
        @JsonProperty("sent_at") @Nullable Instant sentAt,
        @JsonProperty("started_version") @Nullable Long startedVersion,
        @Nullable Outcome outcome,
        @Nullable String reason,
        @Nullable Instant at,
        boolean connected,
        @JsonProperty("targeted_by") ActivityDeviceTargetedBy targetedBy,
        String targeting,
        @Nullable ActivityDeviceCause cause,
        String summary,
        @Nullable List<PushAttempt> attempts) {}
