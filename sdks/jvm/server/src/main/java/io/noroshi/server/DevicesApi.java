// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server;

import io.noroshi.server.types.Device;
import io.noroshi.server.types.DevicePushTokens;
import io.noroshi.server.types.DeviceRegistration;
import io.noroshi.server.types.Devices;
import io.noroshi.server.types.DevicesQuery;
import io.noroshi.server.types.Endpoints;
import io.noroshi.server.types.Invalidation;
import io.noroshi.server.types.Invalidations;
import io.noroshi.server.types.InvalidationsQuery;
import io.noroshi.server.types.NewPushToken;
import io.noroshi.server.types.Preferences;
import io.noroshi.server.types.Registered;
import io.noroshi.server.types.Revoked;
import io.noroshi.server.types.TopicAction;
import io.noroshi.server.types.TopicPermission;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Devices, their push tokens, and their preferences. */
public final class DevicesApi {
    private final Http http;

    DevicesApi(Http http) {
        this.http = http;
    }

    /**
     * Register or update a device.
     *
     * <p>With an API key with the scope {@code devices}, or by the device itself: with its app's JWT, which names
     * device and user, or with its device token, to renew it.
     *
     * @param body the request
     */
    public Registered register(DeviceRegistration body) {
        return Http.await(registerAsync(body));
    }

    /** As {@link #register(DeviceRegistration)}, without a wait. */
    public CompletableFuture<Registered> registerAsync(DeviceRegistration body) {
        return http.call("POST", "/v1/devices").body(body).send(Registered.class);
    }

    /**
     * List devices.
     *
     * <p>Requires the scope {@code read}. Every filter that is given must hold.
     *
     * <p>With a filter other than {@code user}, a page reads at most 20,000 devices, or the days of 200,000 devices if
     * {@code seen_after} and {@code seen_before} are the only filters. So it may have fewer entries than {@code limit},
     * or none, although more follow: continue with {@code next} while it is not null. Tokens that have expired do not
     * count.
     *
     * <p>The day when a device was last seen is a day in UTC. A device is seen when it logs in, when it calls the API
     * itself, and while it is connected. Nodes write the day within seconds, or minutes after a storm of log-ins, and
     * for devices that stay connected within about an hour after midnight (UTC). The order of the list does not depend
     * on it.
     *
     * @param query which ones
     */
    public Pages<Device> list(DevicesQuery query) {
        return new Pages<>(query.after(), after -> http.call("GET", "/v1/devices")
                .query(query.parameters())
                .query("after", after)
                .send(Devices.class)
                .thenApply(page -> new Page<>(page.devices(), page.next())));
    }

    /** List devices. */
    public Pages<Device> list() {
        return list(DevicesQuery.ALL);
    }

    /**
     * One device.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param device Id of the device.
     */
    public Device get(String device) {
        return Http.await(getAsync(device));
    }

    /** As {@link #get(String)}, without a wait. */
    public CompletableFuture<Device> getAsync(String device) {
        return http.call("GET", "/v1/devices/{device}").path("device", device).send(Device.class);
    }

    /**
     * Delete a device.
     *
     * <p>Requires the scope {@code devices}.
     *
     * @param device Id of the device.
     */
    public void delete(String device) {
        Http.await(deleteAsync(device));
    }

    /** As {@link #delete(String)}, without a wait. */
    public CompletableFuture<@Nullable Void> deleteAsync(String device) {
        return http.call("DELETE", "/v1/devices/{device}")
                .path("device", device)
                .send();
    }

    /**
     * Revoke a device's tokens and app JWTs.
     *
     * <p>Requires the scope {@code devices}.
     *
     * @param device Id of the device.
     */
    public Revoked revoke(String device) {
        return Http.await(revokeAsync(device));
    }

    /** As {@link #revoke(String)}, without a wait. */
    public CompletableFuture<Revoked> revokeAsync(String device) {
        return http.call("POST", "/v1/devices/{device}/revoke")
                .path("device", device)
                .safe()
                .send(Revoked.class);
    }

    /**
     * List push tokens.
     *
     * <p>Requires the scope {@code devices}.
     *
     * @param device Id of the device.
     */
    public DevicePushTokens pushTokens(String device) {
        return Http.await(pushTokensAsync(device));
    }

    /** As {@link #pushTokens(String)}, without a wait. */
    public CompletableFuture<DevicePushTokens> pushTokensAsync(String device) {
        return http.call("GET", "/v1/devices/{device}/push-tokens")
                .path("device", device)
                .send(DevicePushTokens.class);
    }

    /**
     * Set a push token without a name.
     *
     * <p>Requires the scope {@code devices}.
     *
     * @param device Id of the device.
     * @param kind What the token is for.
     * @param body the request
     */
    public void setPushToken(String device, String kind, NewPushToken body) {
        Http.await(setPushTokenAsync(device, kind, body));
    }

    /** As {@link #setPushToken(String, String, NewPushToken)}, without a wait. */
    public CompletableFuture<@Nullable Void> setPushTokenAsync(String device, String kind, NewPushToken body) {
        return http.call("PUT", "/v1/devices/{device}/push-tokens/{kind}")
                .path("device", device)
                .path("kind", kind)
                .body(body)
                .send();
    }

    /**
     * Remove a push token without a name.
     *
     * <p>Requires the scope {@code devices}.
     *
     * @param device Id of the device.
     * @param kind What the token is for.
     */
    public void removePushToken(String device, String kind) {
        Http.await(removePushTokenAsync(device, kind));
    }

    /** As {@link #removePushToken(String, String)}, without a wait. */
    public CompletableFuture<@Nullable Void> removePushTokenAsync(String device, String kind) {
        return http.call("DELETE", "/v1/devices/{device}/push-tokens/{kind}")
                .path("device", device)
                .path("kind", kind)
                .send();
    }

    /**
     * Set a push token with a name.
     *
     * <p>Requires the scope {@code devices}.
     *
     * @param device Id of the device.
     * @param kind What the token is for.
     * @param name Distinguishes tokens of the kind.
     * @param body the request
     */
    public void setPushToken(String device, String kind, String name, NewPushToken body) {
        Http.await(setPushTokenAsync(device, kind, name, body));
    }

    /** As {@link #setPushToken(String, String, String, NewPushToken)}, without a wait. */
    public CompletableFuture<@Nullable Void> setPushTokenAsync(
            String device, String kind, String name, NewPushToken body) {
        return http.call("PUT", "/v1/devices/{device}/push-tokens/{kind}/{name}")
                .path("device", device)
                .path("kind", kind)
                .path("name", name)
                .body(body)
                .send();
    }

    /**
     * Remove a push token with a name.
     *
     * <p>Requires the scope {@code devices}.
     *
     * @param device Id of the device.
     * @param kind What the token is for.
     * @param name Distinguishes tokens of the kind.
     */
    public void removePushToken(String device, String kind, String name) {
        Http.await(removePushTokenAsync(device, kind, name));
    }

    /** As {@link #removePushToken(String, String, String)}, without a wait. */
    public CompletableFuture<@Nullable Void> removePushTokenAsync(String device, String kind, String name) {
        return http.call("DELETE", "/v1/devices/{device}/push-tokens/{kind}/{name}")
                .path("device", device)
                .path("kind", kind)
                .path("name", name)
                .send();
    }

    /**
     * Get the preferences of a device.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param device Id of the device.
     */
    public Preferences preferences(String device) {
        return Http.await(preferencesAsync(device));
    }

    /** As {@link #preferences(String)}, without a wait. */
    public CompletableFuture<Preferences> preferencesAsync(String device) {
        return http.call("GET", "/v1/devices/{device}/preferences")
                .path("device", device)
                .send(Preferences.class);
    }

    /**
     * Replace the preferences of a device.
     *
     * <p>Requires the scope {@code devices}. They come before those of the device's user.
     *
     * @param device Id of the device.
     * @param body the request
     */
    public Preferences setPreferences(String device, Preferences body) {
        return Http.await(setPreferencesAsync(device, body));
    }

    /** As {@link #setPreferences(String, Preferences)}, without a wait. */
    public CompletableFuture<Preferences> setPreferencesAsync(String device, Preferences body) {
        return http.call("PUT", "/v1/devices/{device}/preferences")
                .path("device", device)
                .body(body)
                .send(Preferences.class);
    }

    /**
     * Delete the preferences of a device.
     *
     * <p>Requires the scope {@code devices}.
     *
     * @param device Id of the device.
     */
    public void clearPreferences(String device) {
        Http.await(clearPreferencesAsync(device));
    }

    /** As {@link #clearPreferences(String)}, without a wait. */
    public CompletableFuture<@Nullable Void> clearPreferencesAsync(String device) {
        return http.call("DELETE", "/v1/devices/{device}/preferences")
                .path("device", device)
                .send();
    }

    /**
     * List a device's endpoints.
     *
     * <p>Without their URLs, which are not stored. Requires the scope {@code read}.
     *
     * @param device Id of the device.
     */
    public Endpoints endpoints(String device) {
        return Http.await(endpointsAsync(device));
    }

    /** As {@link #endpoints(String)}, without a wait. */
    public CompletableFuture<Endpoints> endpointsAsync(String device) {
        return http.call("GET", "/v1/devices/{device}/endpoints")
                .path("device", device)
                .send(Endpoints.class);
    }

    /**
     * Delete an endpoint of a device.
     *
     * <p>Requires the scope {@code devices}.
     *
     * @param device Id of the device.
     * @param id Id of the endpoint.
     */
    public void deleteEndpoint(String device, String id) {
        Http.await(deleteEndpointAsync(device, id));
    }

    /** As {@link #deleteEndpoint(String, String)}, without a wait. */
    public CompletableFuture<@Nullable Void> deleteEndpointAsync(String device, String id) {
        return http.call("DELETE", "/v1/devices/{device}/endpoints/{id}")
                .path("device", device)
                .path("id", id)
                .send();
    }

    /**
     * Whether a device may use a topic, and why.
     *
     * <p>Requires the scope {@code read}. Returns what the app's topic rules decide for the device and its user. Does
     * not consider claims of a JWT, and calls no webhook.
     *
     * @param device Id of the device.
     * @param topic Name of the topic, percent-encoded: {@code news/jp} is {@code news%2Fjp}.
     * @param action The action of the device.
     */
    public TopicPermission topicPermission(String device, String topic, @Nullable TopicAction action) {
        return Http.await(topicPermissionAsync(device, topic, action));
    }

    /** As {@link #topicPermission(String, String, TopicAction)}, without a wait. */
    public CompletableFuture<TopicPermission> topicPermissionAsync(
            String device, String topic, @Nullable TopicAction action) {
        return http.call("GET", "/v1/devices/{device}/topics/{topic}/permission")
                .path("device", device)
                .path("topic", topic)
                .query("action", action)
                .send(TopicPermission.class);
    }

    /** Whether a device may use a topic, and why. */
    public TopicPermission topicPermission(String device, String topic) {
        return topicPermission(device, topic, null);
    }

    /**
     * List invalidated push tokens.
     *
     * <p>Oldest first, for as long as traces are stored. With {@code Accept: application/x-ndjson}, one per line
     * without {@code next}: continue after the last line's {@code seq}.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param query which ones
     */
    public Pages<Invalidation> invalidations(InvalidationsQuery query) {
        return new Pages<>(query.after(), after -> http.call("GET", "/v1/push/invalidations")
                .query(query.parameters())
                .query("after", after)
                .send(Invalidations.class)
                .thenApply(page -> new Page<>(page.invalidations(), page.next())));
    }

    /** List invalidated push tokens. */
    public Pages<Invalidation> invalidations() {
        return invalidations(InvalidationsQuery.ALL);
    }
}
