// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A campaign and its progress.
 *
 * @param id {@code id}
 * @param name {@code name}
 * @param state {@code scheduled}: waits for {@code start_at}.
 * @param audience {@code audience}
 * @param message {@code message}
 * @param locales Languages that have a variant.
 * @param experiment Results by variant. Null if the campaign has no variants.
 * @param lane {@code lane}
 * @param schedule When devices are due, and how fast it sends, as the request states it.
 * @param notification The notification id of its outcomes: <code>
 *     /v1/notifications/&#123;id&#125;/devices/&#123;device&#125;</code> explains why a device received it or not.
 * @param createdAt RFC 3339, UTC.
 * @param startAt RFC 3339, UTC.
 * @param startedAt RFC 3339, UTC.
 * @param finishedAt RFC 3339, UTC.
 * @param uploaded Number of uploaded users.
 * @param recipients Number of devices queued so far.
 * @param queued Those without a final outcome.
 * @param done Those with a final outcome.
 * @param total Total number of devices. Null until counted.
 * @param counts Number of devices by outcome. Outcomes that are not listed are zero.
 * @param reasons The same by reason, most frequent first.
 * @param errors Devices that no push service accepted it for: refused, token gone, suspended, expired, not configured.
 * @param ratePerSecond Devices per second: current while it runs, otherwise on average.
 * @param etaS Estimated seconds until the end: at this rate, before the first results at the wanted one, and at least
 *     until the last known batch is due. Null if unknown.
 * @param steps Batches that wait for their time, such as the local time of their devices: one entry for all that are
 *     due within a minute, the earliest first. Only in the answer for one campaign; absent if none waits.
 * @param latency Time from the queue to the push service's answer.
 * @param revision Each change of the request or of the recipients adds 1.
 * @param complete False: a draft that lacks something, and cannot start. {@code audience} and {@code message} then show
 *     only what is valid; {@code definition} has everything.
 * @param createdBy E-mail address of a person, or {@code key:} and the name of an API key. Null: an earlier version
 *     created it.
 * @param editedBy Who changed it last, in the format of {@code created_by}.
 * @param editedAt RFC 3339, UTC.
 * @param authors Who created it, changed any of its revisions or uploaded recipients, in the format of
 *     {@code created_by}. None of them may approve it. A change by a further author gets {@code 409} with the code
 *     {@code limit_exceeded}.
 * @param approval The approval of the present revision. Every change and new recipients remove it.
 * @param definition The request as its author wrote it. Absent in lists, and for campaigns that cannot be changed.
 * @param problems What is missing or invalid in a draft. Absent if there is nothing, and in lists.
 * @param warnings What push services of the app do not show of the typed fields. Only when the campaign is created and
 *     while it is a draft; absent if there is nothing to warn of.
 */
public record Campaign(
        String id,
        @Nullable String name,
        CampaignState state,
        Audience audience,
        CampaignMessage message,
        List<String> locales,
        @Nullable CampaignReport experiment,
        CampaignLane lane,
        CampaignSchedule schedule,
        String notification,
        @JsonProperty("created_at") Instant createdAt,
        @JsonProperty("start_at") @Nullable Instant startAt,
        @JsonProperty("started_at") @Nullable Instant startedAt,
        @JsonProperty("finished_at") @Nullable Instant finishedAt,
        long uploaded,
        long recipients,
        long queued,
        long done,
        @Nullable Long total,
        Map<String, Long> counts,
        List<CampaignReason> reasons,
        long errors,
        @JsonProperty("rate_per_second") double ratePerSecond,
        @JsonProperty("eta_s") @Nullable Long etaS,
        @Nullable List<CampaignStep> steps,
        CampaignLatency latency,
        long revision,
        boolean complete,
        @JsonProperty("created_by") @Nullable String createdBy,
        @JsonProperty("edited_by") @Nullable String editedBy,
        @JsonProperty("edited_at") @Nullable Instant editedAt,
        List<String> authors,
        @Nullable CampaignApproval approval,
        @Nullable Map<String, @Nullable Object> definition,
        @Nullable List<CampaignProblem> problems,
        @Nullable List<Warning> warnings) {}
