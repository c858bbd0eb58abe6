package io.noroshi.client;

import java.time.Instant;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The state of the device: {@code GET /v1/me}.
 *
 * @param device the id of the device
 * @param user the user, if the device has one
 * @param topics durable subscriptions
 * @param presence {@code null} if this version does not know it
 * @param inbox how many messages wait for an acknowledgement
 * @param unreadItems unread items of the user
 * @param messages the first messages that wait
 * @param userPreferences preferences of the user, if there are any
 * @param devicePreferences preferences of the device, if there are any
 * @param experiments variants by experiment
 * @param maintenance announced and active maintenance
 * @param fields the whole answer, with fields that this version does not know
 */
public record Me(
        String device,
        @Nullable String user,
        List<String> topics,
        @Nullable Presence presence,
        long inbox,
        long unreadItems,
        List<Message> messages,
        @Nullable Preferences userPreferences,
        @Nullable Preferences devicePreferences,
        Map<String, Variant> experiments,
        List<Maintenance> maintenance,
        Map<String, @Nullable Object> fields) {
    /**
     * A maintenance notice.
     *
     * @param name its name
     * @param state {@code announced} or {@code active}
     * @param startsAt when it starts
     * @param endsAt when it ends
     * @param notification the visible part
     * @param data for the app's code
     */
    public record Maintenance(
            String name,
            String state,
            @Nullable Instant startsAt,
            @Nullable Instant endsAt,
            @Nullable Map<String, @Nullable Object> notification,
            @Nullable Object data) {
        static Maintenance of(Fields fields) {
            return new Maintenance(
                    fields.text("name", ""),
                    fields.text("state", ""),
                    fields.time("starts_at"),
                    fields.time("ends_at"),
                    fields.map("notification"),
                    fields.value("data"));
        }
    }

    static Me of(Fields fields) {
        Fields preferences = fields.object("preferences");
        return new Me(
                fields.text("device", ""),
                fields.text("user"),
                fields.texts("topics"),
                Presence.of(fields.text("presence")),
                fields.number("inbox", 0),
                fields.number("unread_items", 0),
                fields.objects("messages", message -> Message.of(message.text("id", ""), message)),
                preferences == null ? null : Preferences.of(preferences.object("user")),
                preferences == null ? null : Preferences.of(preferences.object("device")),
                fields.objectsByName("experiments", Variant::of),
                fields.objects("maintenance", Maintenance::of),
                Collections.unmodifiableMap(fields.members));
    }
}
