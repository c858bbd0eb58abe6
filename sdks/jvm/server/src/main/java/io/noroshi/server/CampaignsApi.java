// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server;

import io.noroshi.server.types.Campaign;
import io.noroshi.server.types.CampaignChange;
import io.noroshi.server.types.CampaignCount;
import io.noroshi.server.types.CampaignEstimate;
import io.noroshi.server.types.CampaignRecipient;
import io.noroshi.server.types.Campaigns;
import io.noroshi.server.types.CampaignsQuery;
import io.noroshi.server.types.NewCampaign;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Campaigns: one message to many devices. */
public final class CampaignsApi {
    private final Http http;

    CampaignsApi(Http http) {
        this.http = http;
    }

    /**
     * Create a campaign.
     *
     * <p>It starts at once or at {@code start_at}, unless {@code start} is {@code false} or its audience is uploaded.
     * The audience is read with a durable cursor and sent in batches, so a restart of the node skips no device. With
     * {@code ?dry_run=true}, the audience is only counted.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param body the request
     */
    public Campaign create(NewCampaign body) {
        return Http.await(createAsync(body));
    }

    /** As {@link #create(NewCampaign)}, without a wait. */
    public CompletableFuture<Campaign> createAsync(NewCampaign body) {
        return http.call("POST", "/v1/campaigns").body(body).idempotent().send(Campaign.class);
    }

    /**
     * Keep a campaign as a draft, although parts are missing or invalid: {@code problems} of the answer says which.
     *
     * @param body the request
     */
    public Campaign createDraft(NewCampaign body) {
        return Http.await(createDraftAsync(body));
    }

    /** As {@link #createDraft(NewCampaign)}, without a wait. */
    public CompletableFuture<Campaign> createDraftAsync(NewCampaign body) {
        return http.call("POST", "/v1/campaigns")
                .query("draft", true)
                .body(body)
                .idempotent()
                .send(Campaign.class);
    }

    /**
     * Count the audience of a campaign; create nothing.
     *
     * @param body the request
     */
    public CampaignCount count(NewCampaign body) {
        return Http.await(countAsync(body));
    }

    /** As {@link #count(NewCampaign)}, without a wait. */
    public CompletableFuture<CampaignCount> countAsync(NewCampaign body) {
        return http.call("POST", "/v1/campaigns")
                .query("dry_run", true)
                .body(body)
                .safe()
                .send(CampaignCount.class);
    }

    /**
     * List campaigns.
     *
     * <p>Requires the scope {@code read}.
     *
     * <p>With a filter, one call examines at most 5,000 campaigns: a page may then have fewer than {@code limit}
     * although {@code next} is set.
     *
     * @param query which ones
     */
    public Pages<Campaign> list(CampaignsQuery query) {
        return new Pages<>(query.after(), after -> http.call("GET", "/v1/campaigns")
                .query(query.parameters())
                .query("after", after)
                .send(Campaigns.class)
                .thenApply(page -> new Page<>(page.campaigns(), page.next())));
    }

    /** List campaigns. */
    public Pages<Campaign> list() {
        return list(CampaignsQuery.ALL);
    }

    /**
     * Get a campaign and its progress.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param id Id of the campaign.
     */
    public Campaign get(String id) {
        return Http.await(getAsync(id));
    }

    /** As {@link #get(String)}, without a wait. */
    public CompletableFuture<Campaign> getAsync(String id) {
        return http.call("GET", "/v1/campaigns/{id}").path("id", id).send(Campaign.class);
    }

    /**
     * Change a campaign that has not started.
     *
     * <p>Replaces the fields of the body. A scheduled campaign becomes a draft, which must be started again. The body
     * names the revision that the author has changed; if another author changed the campaign since, the response is
     * {@code 409} with the code {@code revision_conflict}, and nothing is changed.
     *
     * <p>The approval of the campaign ends.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param id Id of the campaign.
     * @param body the request
     */
    public Campaign change(String id, CampaignChange body) {
        return Http.await(changeAsync(id, body));
    }

    /** As {@link #change(String, CampaignChange)}, without a wait. */
    public CompletableFuture<Campaign> changeAsync(String id, CampaignChange body) {
        return http.call("PATCH", "/v1/campaigns/{id}")
                .path("id", id)
                .body(body)
                .send(Campaign.class);
    }

    /**
     * Delete an ended campaign.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param id Id of the campaign.
     */
    public void delete(String id) {
        Http.await(deleteAsync(id));
    }

    /** As {@link #delete(String)}, without a wait. */
    public CompletableFuture<@Nullable Void> deleteAsync(String id) {
        return http.call("DELETE", "/v1/campaigns/{id}").path("id", id).send();
    }

    /**
     * Estimate a campaign's audience.
     *
     * <p>Counts up to 20,000 devices; a larger audience is estimated from a sample of at most 12,800 more, with 95 %
     * intervals. Also tells when the devices would get the message, by their clocks, quiet hours and the rate of
     * earlier campaigns. A draft needs only its audience. One estimate of an app runs at a time; another gets
     * {@code 429}.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param id Id of the campaign.
     */
    public CampaignEstimate estimate(String id) {
        return Http.await(estimateAsync(id));
    }

    /** As {@link #estimate(String)}, without a wait. */
    public CompletableFuture<CampaignEstimate> estimateAsync(String id) {
        return http.call("POST", "/v1/campaigns/{id}/estimate")
                .path("id", id)
                .safe()
                .send(CampaignEstimate.class);
    }

    /**
     * Get an uploaded recipient.
     *
     * <p>What one user of an uploaded audience gets. {@code 404} if the user was not uploaded.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param id Id of the campaign.
     * @param user Id of the user.
     */
    public CampaignRecipient recipient(String id, String user) {
        return Http.await(recipientAsync(id, user));
    }

    /** As {@link #recipient(String, String)}, without a wait. */
    public CompletableFuture<CampaignRecipient> recipientAsync(String id, String user) {
        return http.call("GET", "/v1/campaigns/{id}/recipients/{user}")
                .path("id", id)
                .path("user", user)
                .send(CampaignRecipient.class);
    }

    /**
     * Start a campaign.
     *
     * <p>Starts a draft now or at its {@code start_at}. A draft that lacks something gets {@code 409} with the code
     * {@code campaign_incomplete}.
     *
     * <p>A campaign with more recipients than {@code console.large_campaign} (10,000) needs the approval of a second
     * person for its present revision, if a person starts it: otherwise {@code 409} with the code
     * {@code approval_required}. The person must have logged in within the last 10 minutes. API keys need the approval
     * only with {@code console.approve_keys}.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param id Id of the campaign.
     * @param revision Starts only this revision; otherwise {@code 409} with the code {@code revision_conflict}. Without
     *     it, the present one.
     */
    public Campaign start(String id, @Nullable Long revision) {
        return Http.await(startAsync(id, revision));
    }

    /** As {@link #start(String, Long)}, without a wait. */
    public CompletableFuture<Campaign> startAsync(String id, @Nullable Long revision) {
        return http.call("POST", "/v1/campaigns/{id}/start")
                .path("id", id)
                .query("revision", revision)
                .send(Campaign.class);
    }

    /** Start a campaign. */
    public Campaign start(String id) {
        return start(id, null);
    }

    /**
     * Pause a campaign.
     *
     * <p>For a running or scheduled campaign. Batches in progress complete; no further batch is sent.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param id Id of the campaign.
     */
    public Campaign pause(String id) {
        return Http.await(pauseAsync(id));
    }

    /** As {@link #pause(String)}, without a wait. */
    public CompletableFuture<Campaign> pauseAsync(String id) {
        return http.call("POST", "/v1/campaigns/{id}/pause").path("id", id).send(Campaign.class);
    }

    /**
     * Resume a campaign.
     *
     * <p>Continues where it was paused.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param id Id of the campaign.
     */
    public Campaign resume(String id) {
        return Http.await(resumeAsync(id));
    }

    /** As {@link #resume(String)}, without a wait. */
    public CompletableFuture<Campaign> resumeAsync(String id) {
        return http.call("POST", "/v1/campaigns/{id}/resume").path("id", id).send(Campaign.class);
    }

    /**
     * End a campaign.
     *
     * <p>Batches in progress complete; the rest counts as {@code cancelled}.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param id Id of the campaign.
     */
    public Campaign abort(String id) {
        return Http.await(abortAsync(id));
    }

    /** As {@link #abort(String)}, without a wait. */
    public CompletableFuture<Campaign> abortAsync(String id) {
        return http.call("POST", "/v1/campaigns/{id}/abort").path("id", id).send(Campaign.class);
    }
}
