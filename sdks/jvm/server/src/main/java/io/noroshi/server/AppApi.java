// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server;

import io.noroshi.server.types.App;
import io.noroshi.server.types.AppChange;
import io.noroshi.server.types.AppSeriesStep;
import io.noroshi.server.types.Experiment;
import io.noroshi.server.types.ExperimentAssigned;
import io.noroshi.server.types.ExperimentChange;
import io.noroshi.server.types.Experiments;
import io.noroshi.server.types.ExperimentsQuery;
import io.noroshi.server.types.Key;
import io.noroshi.server.types.Keys;
import io.noroshi.server.types.NewExperiment;
import io.noroshi.server.types.NewKey;
import io.noroshi.server.types.NewNotice;
import io.noroshi.server.types.NewPushCredential;
import io.noroshi.server.types.Notice;
import io.noroshi.server.types.Notices;
import io.noroshi.server.types.NoticesQuery;
import io.noroshi.server.types.PushCredential;
import io.noroshi.server.types.PushCredentials;
import io.noroshi.server.types.PushRotation;
import io.noroshi.server.types.PushTest;
import io.noroshi.server.types.PushTested;
import io.noroshi.server.types.Quotas;
import io.noroshi.server.types.RestoreTokens;
import io.noroshi.server.types.RestoredTokens;
import io.noroshi.server.types.Series;
import io.noroshi.server.types.TopicRules;
import java.time.Instant;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** An app, for API keys with the scope {@code admin}. */
public final class AppApi {
    private final Http http;
    private final String app;

    AppApi(Http http, String app) {
        this.http = http;
        this.app = app;
    }

    /**
     * Get the app's JWT settings.
     *
     * <p>Requires the scope {@code admin}.
     */
    public App get() {
        return Http.await(getAsync());
    }

    /** As {@link #get()}, without a wait. */
    public CompletableFuture<App> getAsync() {
        return http.call("GET", "/v1/apps/{app}").path("app", app).send(App.class);
    }

    /**
     * Change the app's JWT settings.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param body the request
     */
    public App change(AppChange body) {
        return Http.await(changeAsync(body));
    }

    /** As {@link #change(AppChange)}, without a wait. */
    public CompletableFuture<App> changeAsync(AppChange body) {
        return http.call("PATCH", "/v1/apps/{app}").path("app", app).body(body).send(App.class);
    }

    /**
     * List API keys.
     *
     * <p>Requires the scope {@code admin}.
     */
    public Keys keys() {
        return Http.await(keysAsync());
    }

    /** As {@link #keys()}, without a wait. */
    public CompletableFuture<Keys> keysAsync() {
        return http.call("GET", "/v1/apps/{app}/keys").path("app", app).send(Keys.class);
    }

    /**
     * Create an API key.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param body the request
     */
    public Key createKey(NewKey body) {
        return Http.await(createKeyAsync(body));
    }

    /** As {@link #createKey(NewKey)}, without a wait. */
    public CompletableFuture<Key> createKeyAsync(NewKey body) {
        return http.call("POST", "/v1/apps/{app}/keys")
                .path("app", app)
                .body(body)
                .send(Key.class);
    }

    /**
     * Revoke an API key.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param key Id of the key.
     */
    public void revokeKey(String key) {
        Http.await(revokeKeyAsync(key));
    }

    /** As {@link #revokeKey(String)}, without a wait. */
    public CompletableFuture<@Nullable Void> revokeKeyAsync(String key) {
        return http.call("DELETE", "/v1/apps/{app}/keys/{key}")
                .path("app", app)
                .path("key", key)
                .send();
    }

    /** Get quotas: limits, usage and rejections. */
    public Quotas quotas() {
        return Http.await(quotasAsync());
    }

    /** As {@link #quotas()}, without a wait. */
    public CompletableFuture<Quotas> quotasAsync() {
        return http.call("GET", "/v1/apps/{app}/quotas").path("app", app).send(Quotas.class);
    }

    /**
     * Figures over time of an app.
     *
     * <p>Figures of all nodes together, which the service keeps itself: in steps of 10 s for 2 hours, of a minute for 3
     * days, and of an hour for 31 days. A {@code count} is the number of events in the step; divide it by
     * {@code covered_s} for a rate. A {@code gauge} is a mean, a {@code time} a quantile in seconds. A point that was
     * not measured is {@code null}, never 0. A time without events is {@code null} too. An app has figures of its own.
     * They are {@code null} in steps in which so many apps were busier that the row had no room for it.
     *
     * @param names Series, comma-separated. All without it. {@code connections} (gauge): open connections;
     *     {@code log_ins} (count): log-ins; of an app: connections whose token was verified; {@code publishes} (count):
     *     accepted notifications; {@code deliveries} (count): notifications written to connections;
     *     {@code pushes_accepted} (count): pushes that push services accepted; {@code pushes_refused} (count): pushes
     *     that push services rejected; {@code quota_refusals} (count): requests refused because of quotas.
     * @param from Without it, one hour before {@code until}. Moved back to the begin of a step.
     * @param until Without it, now.
     * @param step Without it, the shortest step that is kept for the range and gives at most 1,500 points.
     * @param node Only this node's figures. With steps of 10 s only, and not for an app: rejected here.
     */
    public Series series(
            @Nullable String names,
            @Nullable Instant from,
            @Nullable Instant until,
            @Nullable AppSeriesStep step,
            @Nullable String node) {
        return Http.await(seriesAsync(names, from, until, step, node));
    }

    /** As {@link #series(String, Instant, Instant, AppSeriesStep, String)}, without a wait. */
    public CompletableFuture<Series> seriesAsync(
            @Nullable String names,
            @Nullable Instant from,
            @Nullable Instant until,
            @Nullable AppSeriesStep step,
            @Nullable String node) {
        return http.call("GET", "/v1/apps/{app}/series")
                .path("app", app)
                .query("names", names)
                .query("from", from)
                .query("until", until)
                .query("step", step)
                .query("node", node)
                .send(Series.class);
    }

    /** Figures over time of an app. */
    public Series series() {
        return series(null, null, null, null, null);
    }

    /**
     * Get the topic rules of an app.
     *
     * <p>Requires the scope {@code admin}.
     */
    public TopicRules topicRules() {
        return Http.await(topicRulesAsync());
    }

    /** As {@link #topicRules()}, without a wait. */
    public CompletableFuture<TopicRules> topicRulesAsync() {
        return http.call("GET", "/v1/apps/{app}/topic-rules").path("app", app).send(TopicRules.class);
    }

    /**
     * Replace the topic rules of an app.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param body the request
     */
    public TopicRules setTopicRules(TopicRules body) {
        return Http.await(setTopicRulesAsync(body));
    }

    /** As {@link #setTopicRules(TopicRules)}, without a wait. */
    public CompletableFuture<TopicRules> setTopicRulesAsync(TopicRules body) {
        return http.call("PUT", "/v1/apps/{app}/topic-rules")
                .path("app", app)
                .body(body)
                .send(TopicRules.class);
    }

    /**
     * Remove the topic rules of an app.
     *
     * <p>Requires the scope {@code admin}.
     */
    public void deleteTopicRules() {
        Http.await(deleteTopicRulesAsync());
    }

    /** As {@link #deleteTopicRules()}, without a wait. */
    public CompletableFuture<@Nullable Void> deleteTopicRulesAsync() {
        return http.call("DELETE", "/v1/apps/{app}/topic-rules")
                .path("app", app)
                .send();
    }

    /**
     * List credentials of push services.
     *
     * <p>Requires the scope {@code admin}.
     */
    public PushCredentials pushCredentials() {
        return Http.await(pushCredentialsAsync());
    }

    /** As {@link #pushCredentials()}, without a wait. */
    public CompletableFuture<PushCredentials> pushCredentialsAsync() {
        return http.call("GET", "/v1/apps/{app}/push").path("app", app).send(PushCredentials.class);
    }

    /**
     * Add a push service credential.
     *
     * <p>The secret is stored encrypted with the node's key, and never appears in a response or log. An app has one
     * credential for each push service and environment, and of {@code webhook} one for each name. Services other than
     * APNs, FCM and Web Push are refused with {@code unavailable} while a node of the cell runs a version that does not
     * know them. {@code ?replace=true} replaces it without interruption.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param body the request
     * @param replace Replace the existing credential.
     */
    public PushCredential addPushCredential(NewPushCredential body, @Nullable Boolean replace) {
        return Http.await(addPushCredentialAsync(body, replace));
    }

    /** As {@link #addPushCredential(NewPushCredential, Boolean)}, without a wait. */
    public CompletableFuture<PushCredential> addPushCredentialAsync(NewPushCredential body, @Nullable Boolean replace) {
        return http.call("POST", "/v1/apps/{app}/push")
                .path("app", app)
                .query("replace", replace)
                .body(body)
                .send(PushCredential.class);
    }

    /** Add a push service credential. */
    public PushCredential addPushCredential(NewPushCredential body) {
        return addPushCredential(body, null);
    }

    /**
     * Remove a credential.
     *
     * <p>Pushes in progress complete. Later pushes to devices of this push service end with
     * {@code push_not_configured}.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param id Id of the credential.
     */
    public void removePushCredential(String id) {
        Http.await(removePushCredentialAsync(id));
    }

    /** As {@link #removePushCredential(String)}, without a wait. */
    public CompletableFuture<@Nullable Void> removePushCredentialAsync(String id) {
        return http.call("DELETE", "/v1/apps/{app}/push/{id}")
                .path("app", app)
                .path("id", id)
                .send();
    }

    /**
     * Push to one device now.
     *
     * <p>Sends a short visible notification to the device and returns the push service's answer. Nothing is recorded,
     * and no token is removed.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param id Id of the credential.
     * @param body the request
     */
    public PushTested testPushCredential(String id, PushTest body) {
        return Http.await(testPushCredentialAsync(id, body));
    }

    /** As {@link #testPushCredential(String, PushTest)}, without a wait. */
    public CompletableFuture<PushTested> testPushCredentialAsync(String id, PushTest body) {
        return http.call("POST", "/v1/apps/{app}/push/{id}/test")
                .path("app", app)
                .path("id", id)
                .body(body)
                .send(PushTested.class);
    }

    /**
     * Replace the secret of a credential.
     *
     * <p>Changes the fields in {@code credential}, keeps the others, and pushes a short visible notification to the
     * device with the changed credential. Only if the push service accepts it, the changed credential replaces the
     * former one, in one step. Pushes that are queued or in flight are finished with the former one. Otherwise nothing
     * changes, and the answer is {@code credential_test_failed} with the answer of the push service. If the credential
     * is changed or removed during the test, the answer is {@code wrong_state}.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param id Id of the credential.
     * @param body the request
     */
    public PushCredential rotatePushCredential(String id, PushRotation body) {
        return Http.await(rotatePushCredentialAsync(id, body));
    }

    /** As {@link #rotatePushCredential(String, PushRotation)}, without a wait. */
    public CompletableFuture<PushCredential> rotatePushCredentialAsync(String id, PushRotation body) {
        return http.call("POST", "/v1/apps/{app}/push/{id}/rotate")
                .path("app", app)
                .path("id", id)
                .body(body)
                .send(PushCredential.class);
    }

    /**
     * Use suspended tokens again.
     *
     * <p>Restores push tokens of the credential's push service and environment that the node suspended because the push
     * service reported another app, topic or environment. Call it after you have corrected the credential. A token that
     * the push service reports again is suspended again.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param id Id of the credential.
     * @param body the request
     */
    public RestoredTokens restorePushTokens(String id, RestoreTokens body) {
        return Http.await(restorePushTokensAsync(id, body));
    }

    /** As {@link #restorePushTokens(String, RestoreTokens)}, without a wait. */
    public CompletableFuture<RestoredTokens> restorePushTokensAsync(String id, RestoreTokens body) {
        return http.call("POST", "/v1/apps/{app}/push/{id}/restore")
                .path("app", app)
                .path("id", id)
                .body(body)
                .send(RestoredTokens.class);
    }

    /**
     * List experiments.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param query which ones
     */
    public Pages<Experiment> experiments(ExperimentsQuery query) {
        return new Pages<>(query.after(), after -> http.call("GET", "/v1/apps/{app}/experiments")
                .path("app", app)
                .query(query.parameters())
                .query("after", after)
                .send(Experiments.class)
                .thenApply(page -> new Page<>(page.experiments(), page.next())));
    }

    /** List experiments. */
    public Pages<Experiment> experiments() {
        return experiments(ExperimentsQuery.ALL);
    }

    /**
     * Get an experiment.
     *
     * <p>The live one with this name, otherwise the last archived one.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param name Name of the experiment.
     */
    public Experiment experiment(String name) {
        return Http.await(experimentAsync(name));
    }

    /** As {@link #experiment(String)}, without a wait. */
    public CompletableFuture<Experiment> experimentAsync(String name) {
        return http.call("GET", "/v1/apps/{app}/experiments/{name}")
                .path("app", app)
                .path("name", name)
                .send(Experiment.class);
    }

    /**
     * Create or replace an experiment.
     *
     * <p>Devices receive it with their next first call ({@code GET /v1/me}). Changing a weight moves users only to or
     * from that variant.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param name Name of the experiment.
     * @param body the request
     */
    public Experiment putExperiment(String name, NewExperiment body) {
        return Http.await(putExperimentAsync(name, body));
    }

    /** As {@link #putExperiment(String, NewExperiment)}, without a wait. */
    public CompletableFuture<Experiment> putExperimentAsync(String name, NewExperiment body) {
        return http.call("PUT", "/v1/apps/{app}/experiments/{name}")
                .path("app", app)
                .path("name", name)
                .body(body)
                .send(Experiment.class);
    }

    /**
     * Stop or restart an experiment.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param name Name of the experiment.
     * @param body the request
     */
    public Experiment killExperiment(String name, ExperimentChange body) {
        return Http.await(killExperimentAsync(name, body));
    }

    /** As {@link #killExperiment(String, ExperimentChange)}, without a wait. */
    public CompletableFuture<Experiment> killExperimentAsync(String name, ExperimentChange body) {
        return http.call("PATCH", "/v1/apps/{app}/experiments/{name}")
                .path("app", app)
                .path("name", name)
                .body(body)
                .safe()
                .send(Experiment.class);
    }

    /**
     * End an experiment.
     *
     * <p>Archives it: no device is in it any longer, and its name is free for another one.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param name Name of the experiment.
     */
    public void archiveExperiment(String name) {
        Http.await(archiveExperimentAsync(name));
    }

    /** As {@link #archiveExperiment(String)}, without a wait. */
    public CompletableFuture<@Nullable Void> archiveExperimentAsync(String name) {
        return http.call("DELETE", "/v1/apps/{app}/experiments/{name}")
                .path("app", app)
                .path("name", name)
                .send();
    }

    /**
     * Get the variant of a device.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param name Name of the experiment.
     * @param device Device id.
     */
    public ExperimentAssigned experimentAssigned(String name, String device) {
        return Http.await(experimentAssignedAsync(name, device));
    }

    /** As {@link #experimentAssigned(String, String)}, without a wait. */
    public CompletableFuture<ExperimentAssigned> experimentAssignedAsync(String name, String device) {
        return http.call("GET", "/v1/apps/{app}/experiments/{name}/devices/{device}")
                .path("app", app)
                .path("name", name)
                .path("device", device)
                .send(ExperimentAssigned.class);
    }

    /**
     * List maintenance notices.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param query which ones
     */
    public Pages<Notice> notices(NoticesQuery query) {
        return new Pages<>(query.after(), after -> http.call("GET", "/v1/apps/{app}/notices")
                .path("app", app)
                .query(query.parameters())
                .query("after", after)
                .send(Notices.class)
                .thenApply(page -> new Page<>(page.notices(), page.next())));
    }

    /** List maintenance notices. */
    public Pages<Notice> notices() {
        return notices(NoticesQuery.ALL);
    }

    /**
     * Get a maintenance notice.
     *
     * <p>The live one with this name, otherwise the last archived one.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param name Name of the notice.
     */
    public Notice notice(String name) {
        return Http.await(noticeAsync(name));
    }

    /** As {@link #notice(String)}, without a wait. */
    public CompletableFuture<Notice> noticeAsync(String name) {
        return http.call("GET", "/v1/apps/{app}/notices/{name}")
                .path("app", app)
                .path("name", name)
                .send(Notice.class);
    }

    /**
     * Create or replace a maintenance notice.
     *
     * <p>Included in {@code GET /v1/me}, and published to the topic {@code $maintenance} when it is announced, starts,
     * changes and ends.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param name Name of the notice.
     * @param body the request
     */
    public Notice putNotice(String name, NewNotice body) {
        return Http.await(putNoticeAsync(name, body));
    }

    /** As {@link #putNotice(String, NewNotice)}, without a wait. */
    public CompletableFuture<Notice> putNoticeAsync(String name, NewNotice body) {
        return http.call("PUT", "/v1/apps/{app}/notices/{name}")
                .path("app", app)
                .path("name", name)
                .body(body)
                .send(Notice.class);
    }

    /**
     * End a maintenance notice now.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param name Name of the notice.
     */
    public void endNotice(String name) {
        Http.await(endNoticeAsync(name));
    }

    /** As {@link #endNotice(String)}, without a wait. */
    public CompletableFuture<@Nullable Void> endNoticeAsync(String name) {
        return http.call("DELETE", "/v1/apps/{app}/notices/{name}")
                .path("app", app)
                .path("name", name)
                .send();
    }
}
