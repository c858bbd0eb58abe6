// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server;

import io.noroshi.server.types.Item;
import io.noroshi.server.types.ItemCounts;
import io.noroshi.server.types.Items;
import io.noroshi.server.types.ItemsDeleted;
import io.noroshi.server.types.ItemsOfUserQuery;
import io.noroshi.server.types.Preferences;
import io.noroshi.server.types.PresenceAnswer;
import io.noroshi.server.types.PresenceQuery;
import io.noroshi.server.types.UserRevoked;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Users: presence, items of the notification centre, preferences. */
public final class UsersApi {
    private final Http http;

    UsersApi(Http http) {
        this.http = http;
    }

    /**
     * Which of up to 1,000 users are online.
     *
     * <p>Requires the scope {@code read}.
     *
     * @param body the request
     */
    public PresenceAnswer presence(PresenceQuery body) {
        return Http.await(presenceAsync(body));
    }

    /** As {@link #presence(PresenceQuery)}, without a wait. */
    public CompletableFuture<PresenceAnswer> presenceAsync(PresenceQuery body) {
        return http.call("POST", "/v1/presence").body(body).safe().send(PresenceAnswer.class);
    }

    /**
     * Revoke a user's app JWTs and the tokens of the user's devices.
     *
     * <p>Requires the scope {@code devices}. App JWTs of this user that were issued until now (claim {@code iat}, in
     * seconds) stop working permanently on all devices, as do those without {@code iat}. The user may be unknown.
     *
     * @param user Id of the user.
     */
    public UserRevoked revoke(String user) {
        return Http.await(revokeAsync(user));
    }

    /** As {@link #revoke(String)}, without a wait. */
    public CompletableFuture<UserRevoked> revokeAsync(String user) {
        return http.call("POST", "/v1/users/{user}/revoke")
                .path("user", user)
                .safe()
                .send(UserRevoked.class);
    }

    /**
     * List the items of a user.
     *
     * <p>Requires the scope {@code read}. The user may be unknown.
     *
     * @param user Id of the user.
     * @param query which ones
     */
    public Pages<Item> items(String user, ItemsOfUserQuery query) {
        return new Pages<>(query.after(), after -> http.call("GET", "/v1/users/{user}/items")
                .path("user", user)
                .query(query.parameters())
                .query("after", after)
                .send(Items.class)
                .thenApply(page -> new Page<>(page.items(), page.next())));
    }

    /** List the items of a user. */
    public Pages<Item> items(String user) {
        return items(user, ItemsOfUserQuery.ALL);
    }

    /**
     * Delete all items of a user.
     *
     * <p>Requires the scope {@code devices}. For example when the user's account is deleted. The user may be unknown,
     * and may get items again.
     *
     * @param user Id of the user.
     */
    public ItemsDeleted deleteItems(String user) {
        return Http.await(deleteItemsAsync(user));
    }

    /** As {@link #deleteItems(String)}, without a wait. */
    public CompletableFuture<ItemsDeleted> deleteItemsAsync(String user) {
        return http.call("DELETE", "/v1/users/{user}/items").path("user", user).send(ItemsDeleted.class);
    }

    /**
     * Count the unread items of a user.
     *
     * <p>Requires the scope {@code read}. The user may be unknown.
     *
     * @param user Id of the user.
     */
    public ItemCounts itemCounts(String user) {
        return Http.await(itemCountsAsync(user));
    }

    /** As {@link #itemCounts(String)}, without a wait. */
    public CompletableFuture<ItemCounts> itemCountsAsync(String user) {
        return http.call("GET", "/v1/users/{user}/items/counts")
                .path("user", user)
                .send(ItemCounts.class);
    }

    /**
     * Get the preferences of a user.
     *
     * <p>Requires the scope {@code read}. The user may be unknown.
     *
     * @param user Id of the user.
     */
    public Preferences preferences(String user) {
        return Http.await(preferencesAsync(user));
    }

    /** As {@link #preferences(String)}, without a wait. */
    public CompletableFuture<Preferences> preferencesAsync(String user) {
        return http.call("GET", "/v1/users/{user}/preferences")
                .path("user", user)
                .send(Preferences.class);
    }

    /**
     * Replace the preferences of a user.
     *
     * <p>Requires the scope {@code devices}. All devices of the user follow them, unless their own preferences differ.
     * The user may be unknown.
     *
     * @param user Id of the user.
     * @param body the request
     */
    public Preferences setPreferences(String user, Preferences body) {
        return Http.await(setPreferencesAsync(user, body));
    }

    /** As {@link #setPreferences(String, Preferences)}, without a wait. */
    public CompletableFuture<Preferences> setPreferencesAsync(String user, Preferences body) {
        return http.call("PUT", "/v1/users/{user}/preferences")
                .path("user", user)
                .body(body)
                .send(Preferences.class);
    }

    /**
     * Delete the preferences of a user.
     *
     * <p>Requires the scope {@code devices}.
     *
     * @param user Id of the user.
     */
    public void clearPreferences(String user) {
        Http.await(clearPreferencesAsync(user));
    }

    /** As {@link #clearPreferences(String)}, without a wait. */
    public CompletableFuture<@Nullable Void> clearPreferencesAsync(String user) {
        return http.call("DELETE", "/v1/users/{user}/preferences")
                .path("user", user)
                .send();
    }
}
