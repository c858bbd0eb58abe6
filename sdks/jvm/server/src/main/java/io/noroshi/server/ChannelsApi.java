// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server;

import io.noroshi.server.types.ApnsEnvironment;
import io.noroshi.server.types.AppleChannels;
import io.noroshi.server.types.BroadcastState;
import io.noroshi.server.types.Channel;
import io.noroshi.server.types.ChannelChange;
import io.noroshi.server.types.Channels;
import io.noroshi.server.types.ChannelsQuery;
import io.noroshi.server.types.NewBroadcast;
import io.noroshi.server.types.NewChannel;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Broadcast channels of APNs. */
public final class ChannelsApi {
    private final Http http;

    ChannelsApi(Http http) {
        this.http = http;
    }

    /**
     * List channels.
     *
     * <p>By name.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param query which ones
     */
    public Pages<Channel> list(ChannelsQuery query) {
        return new Pages<>(query.after(), after -> http.call("GET", "/v1/push/channels")
                .query(query.parameters())
                .query("after", after)
                .send(Channels.class)
                .thenApply(page -> new Page<>(page.channels(), page.next())));
    }

    /** List channels. */
    public Pages<Channel> list() {
        return list(ChannelsQuery.ALL);
    }

    /**
     * Create a channel.
     *
     * <p>Creates it at Apple with the app's credential for APNs. A channel that exists under the name with the same
     * settings is returned with {@code 200}, so the request may be repeated: after {@code push_service_failed}, Apple
     * may have created a channel that nobody knows ({@code GET /v1/push/apns-channels} lists it), and the repetition
     * creates another one. The app subscribes to {@code apns_id} (docs/broadcast.md).
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param body the request
     */
    public Channel create(NewChannel body) {
        return Http.await(createAsync(body));
    }

    /** As {@link #create(NewChannel)}, without a wait. */
    public CompletableFuture<Channel> createAsync(NewChannel body) {
        return http.call("POST", "/v1/push/channels").body(body).send(Channel.class);
    }

    /**
     * Show a channel.
     *
     * <p>With its newest broadcasts.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param name Name of the channel.
     */
    public Channel get(String name) {
        return Http.await(getAsync(name));
    }

    /** As {@link #get(String)}, without a wait. */
    public CompletableFuture<Channel> getAsync(String name) {
        return http.call("GET", "/v1/push/channels/{name}").path("name", name).send(Channel.class);
    }

    /**
     * Bind a channel to a topic.
     *
     * <p>{@code null} binds it to none.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param name Name of the channel.
     * @param body the request
     */
    public Channel change(String name, ChannelChange body) {
        return Http.await(changeAsync(name, body));
    }

    /** As {@link #change(String, ChannelChange)}, without a wait. */
    public CompletableFuture<Channel> changeAsync(String name, ChannelChange body) {
        return http.call("PATCH", "/v1/push/channels/{name}")
                .path("name", name)
                .body(body)
                .send(Channel.class);
    }

    /**
     * Delete a channel.
     *
     * <p>At Apple and here. Broadcasts that wait are cancelled. Repeat it after an error.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param name Name of the channel.
     * @param forget Only forget it here; it stays at Apple.
     */
    public void delete(String name, @Nullable Boolean forget) {
        Http.await(deleteAsync(name, forget));
    }

    /** As {@link #delete(String, Boolean)}, without a wait. */
    public CompletableFuture<@Nullable Void> deleteAsync(String name, @Nullable Boolean forget) {
        return http.call("DELETE", "/v1/push/channels/{name}")
                .path("name", name)
                .query("forget", forget)
                .send();
    }

    /** Delete a channel. */
    public void delete(String name) {
        delete(name, null);
    }

    /**
     * Send to a channel.
     *
     * <p>Accepted means stored: it is sent once after a crash too, and repeated with the same {@code apns-request-id}
     * if Apple's answer was lost. Broadcasts of a channel are sent in order.
     *
     * <p>Requires the scope {@code publish}.
     *
     * @param name Name of the channel.
     * @param body the request
     */
    public BroadcastState broadcast(String name, NewBroadcast body) {
        return Http.await(broadcastAsync(name, body));
    }

    /** As {@link #broadcast(String, NewBroadcast)}, without a wait. */
    public CompletableFuture<BroadcastState> broadcastAsync(String name, NewBroadcast body) {
        return http.call("POST", "/v1/push/channels/{name}/broadcasts")
                .path("name", name)
                .body(body)
                .idempotent()
                .send(BroadcastState.class);
    }

    /**
     * Show a broadcast.
     *
     * <p>Kept for as long as traces, and at least a day.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param id Id of the broadcast.
     */
    public BroadcastState broadcastState(String id) {
        return Http.await(broadcastStateAsync(id));
    }

    /** As {@link #broadcastState(String)}, without a wait. */
    public CompletableFuture<BroadcastState> broadcastStateAsync(String id) {
        return http.call("GET", "/v1/push/broadcasts/{id}").path("id", id).send(BroadcastState.class);
    }

    /**
     * List the channels at Apple.
     *
     * <p>Those of the credential's bundle id. One without a name belongs to no channel of the app: its creation was
     * interrupted, or another program made it.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param environment Apple's environment.
     */
    public AppleChannels appleChannels(@Nullable ApnsEnvironment environment) {
        return Http.await(appleChannelsAsync(environment));
    }

    /** As {@link #appleChannels(ApnsEnvironment)}, without a wait. */
    public CompletableFuture<AppleChannels> appleChannelsAsync(@Nullable ApnsEnvironment environment) {
        return http.call("GET", "/v1/push/apns-channels")
                .query("environment", environment)
                .send(AppleChannels.class);
    }

    /** List the channels at Apple. */
    public AppleChannels appleChannels() {
        return appleChannels(null);
    }

    /**
     * Delete a channel at Apple.
     *
     * <p>Only one that no channel of the app names.
     *
     * <p>Requires the scope {@code admin}.
     *
     * @param id Apple's id, percent-encoded.
     * @param environment Apple's environment.
     */
    public void deleteAppleChannel(String id, @Nullable ApnsEnvironment environment) {
        Http.await(deleteAppleChannelAsync(id, environment));
    }

    /** As {@link #deleteAppleChannel(String, ApnsEnvironment)}, without a wait. */
    public CompletableFuture<@Nullable Void> deleteAppleChannelAsync(String id, @Nullable ApnsEnvironment environment) {
        return http.call("DELETE", "/v1/push/apns-channels/{id}")
                .path("id", id)
                .query("environment", environment)
                .send();
    }

    /** Delete a channel at Apple. */
    public void deleteAppleChannel(String id) {
        deleteAppleChannel(id, null);
    }
}
