// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server;

import io.noroshi.server.types.Activities;
import io.noroshi.server.types.ActivitiesQuery;
import io.noroshi.server.types.Activity;
import io.noroshi.server.types.ActivityDevice;
import io.noroshi.server.types.ActivityEnd;
import io.noroshi.server.types.ActivityUpdate;
import io.noroshi.server.types.NewActivity;
import java.util.concurrent.CompletableFuture;

/** Live Activities of iOS, and Live Updates of Android. */
public final class ActivitiesApi {
    private final Http http;

    ActivitiesApi(Http http) {
        this.http = http;
    }

    /**
     * Start a Live Activity.
     *
     * <p>Starts an activity on the devices of the target: by push on iOS and Android, and as a message on connected
     * devices (docs/activities.md).
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param body the request
     */
    public Activity start(NewActivity body) {
        return Http.await(startAsync(body));
    }

    /** As {@link #start(NewActivity)}, without a wait. */
    public CompletableFuture<Activity> startAsync(NewActivity body) {
        return http.call("POST", "/v1/activities").body(body).idempotent().send(Activity.class);
    }

    /**
     * List Live Activities.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param query which ones
     */
    public Pages<Activity> list(ActivitiesQuery query) {
        return new Pages<>(query.after(), after -> http.call("GET", "/v1/activities")
                .query(query.parameters())
                .query("after", after)
                .send(Activities.class)
                .thenApply(page -> new Page<>(page.activities(), page.next())));
    }

    /** List Live Activities. */
    public Pages<Activity> list() {
        return list(ActivitiesQuery.ALL);
    }

    /**
     * Get a Live Activity and its progress.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param id Id of the activity.
     */
    public Activity get(String id) {
        return Http.await(getAsync(id));
    }

    /** As {@link #get(String)}, without a wait. */
    public CompletableFuture<Activity> getAsync(String id) {
        return http.call("GET", "/v1/activities/{id}").path("id", id).send(Activity.class);
    }

    /**
     * Update a Live Activity.
     *
     * <p>Sets a new state. If several updates come before a device got the first, it gets the newest only.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param id Id of the activity.
     * @param body the request
     */
    public Activity update(String id, ActivityUpdate body) {
        return Http.await(updateAsync(id, body));
    }

    /** As {@link #update(String, ActivityUpdate)}, without a wait. */
    public CompletableFuture<Activity> updateAsync(String id, ActivityUpdate body) {
        return http.call("PATCH", "/v1/activities/{id}")
                .path("id", id)
                .body(body)
                .send(Activity.class);
    }

    /**
     * End a Live Activity.
     *
     * <p>Ends it on all devices with its last state. The body may be absent.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param id Id of the activity.
     * @param body the request
     */
    public Activity end(String id, ActivityEnd body) {
        return Http.await(endAsync(id, body));
    }

    /** As {@link #end(String, ActivityEnd)}, without a wait. */
    public CompletableFuture<Activity> endAsync(String id, ActivityEnd body) {
        return http.call("DELETE", "/v1/activities/{id}")
                .path("id", id)
                .body(body)
                .unsafe()
                .send(Activity.class);
    }

    /**
     * Why a device has the newest state of a Live Activity, or not.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param id Id of the activity.
     * @param device Id of the device.
     */
    public ActivityDevice device(String id, String device) {
        return Http.await(deviceAsync(id, device));
    }

    /** As {@link #device(String, String)}, without a wait. */
    public CompletableFuture<ActivityDevice> deviceAsync(String id, String device) {
        return http.call("GET", "/v1/activities/{id}/devices/{device}")
                .path("id", id)
                .path("device", device)
                .send(ActivityDevice.class);
    }
}
