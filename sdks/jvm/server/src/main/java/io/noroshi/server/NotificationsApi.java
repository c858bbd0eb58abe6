// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server;

import io.noroshi.server.types.Cancelled;
import io.noroshi.server.types.ListedNotification;
import io.noroshi.server.types.Notification;
import io.noroshi.server.types.NotificationState;
import io.noroshi.server.types.Notifications;
import io.noroshi.server.types.NotificationsQuery;
import io.noroshi.server.types.Receipt;
import io.noroshi.server.types.Trace;
import java.util.concurrent.CompletableFuture;

/** Notifications that the service accepted. */
public final class NotificationsApi {
    private final Http http;

    NotificationsApi(Http http) {
        this.http = http;
    }

    /**
     * Notify users, devices, a topic, a condition, or everyone.
     *
     * <p>One call for up to ten thousand targets. {@code active} and {@code connected} are delivered at most once;
     * {@code stored} at least once, with the same id.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param body the request
     */
    public Receipt publish(Notification body) {
        return Http.await(publishAsync(body));
    }

    /** As {@link #publish(Notification)}, without a wait. */
    public CompletableFuture<Receipt> publishAsync(Notification body) {
        return http.call("POST", "/v1/notifications").body(body).idempotent().send(Receipt.class);
    }

    /**
     * List notifications.
     *
     * <p>The notifications that Noroshi still keeps, newest first. Every filter that is given must hold. Requires the
     * scope {@code read}.
     *
     * <p>A page reads at most 20,000 notifications of the app, whatever the filter. So a page may have fewer entries
     * than {@code limit}, or none, although more follow: continue with {@code next} while it is not null.
     * {@code searched_to} is the time back to which the list is complete.
     *
     * <p>With {@code user} or {@code device}, the list has the notifications that name it, those to topics to which its
     * devices durably subscribed before, those that wait in an inbox, and those to conditions and of campaigns whose
     * outcomes list a device. It cannot know topics that a device followed for a session only, subscriptions that have
     * ended, and former users of a device. Of a user, the newest 20 devices count.
     *
     * @param query which ones
     */
    public Pages<ListedNotification> list(NotificationsQuery query) {
        return new Pages<>(query.after(), after -> http.call("GET", "/v1/notifications")
                .query(query.parameters())
                .query("after", after)
                .send(Notifications.class)
                .thenApply(page -> new Page<>(page.notifications(), page.next())));
    }

    /** List notifications. */
    public Pages<ListedNotification> list() {
        return list(NotificationsQuery.ALL);
    }

    /**
     * State and counts of a notification.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param id Id of the notification.
     */
    public NotificationState get(String id) {
        return Http.await(getAsync(id));
    }

    /** As {@link #get(String)}, without a wait. */
    public CompletableFuture<NotificationState> getAsync(String id) {
        return http.call("GET", "/v1/notifications/{id}").path("id", id).send(NotificationState.class);
    }

    /**
     * Cancel undelivered copies.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param id Id of the notification.
     */
    public Cancelled cancel(String id) {
        return Http.await(cancelAsync(id));
    }

    /** As {@link #cancel(String)}, without a wait. */
    public CompletableFuture<Cancelled> cancelAsync(String id) {
        return http.call("DELETE", "/v1/notifications/{id}").path("id", id).send(Cancelled.class);
    }

    /**
     * Why a device received it, or did not.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param id Id of the notification, or of a campaign: then the answer covers everything that the campaign sends to
     *     the device.
     * @param device Id of the device.
     */
    public Trace trace(String id, String device) {
        return Http.await(traceAsync(id, device));
    }

    /** As {@link #trace(String, String)}, without a wait. */
    public CompletableFuture<Trace> traceAsync(String id, String device) {
        return http.call("GET", "/v1/notifications/{id}/devices/{device}")
                .path("id", id)
                .path("device", device)
                .send(Trace.class);
    }
}
