package io.noroshi.client;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Which notifications arrive, and how. {@code null}: not stated.
 *
 * @param channels of {@code live}, {@code push} and {@code inbox}, the ways in which notifications arrive
 * @param mutedTopics topics from which none arrives
 * @param categories by category
 * @param quietHours when none makes a sound
 */
public record Preferences(
        @Nullable List<String> channels,
        @Nullable List<String> mutedTopics,
        @Nullable Map<String, Category> categories,
        @Nullable QuietHours quietHours) {
    /** No preferences. */
    public static final Preferences NONE = new Preferences(null, null, null, null);

    /**
     * Preferences for a category.
     *
     * @param isMuted whether none arrives
     * @param channels the ways in which notifications of the category arrive
     * @param dailyMax how many arrive in a day at most
     */
    public record Category(@Nullable Boolean isMuted, @Nullable List<String> channels, @Nullable Long dailyMax) {}

    /**
     * A part of the day.
     *
     * @param from such as {@code 22:00}
     * @param to such as {@code 07:00}
     * @param timezone an IANA time zone; {@code null}: that of the device
     */
    public record QuietHours(String from, String to, @Nullable String timezone) {}

    public Preferences withChannels(@Nullable List<String> channels) {
        return new Preferences(channels, mutedTopics, categories, quietHours);
    }

    public Preferences withMutedTopics(@Nullable List<String> mutedTopics) {
        return new Preferences(channels, mutedTopics, categories, quietHours);
    }

    public Preferences withCategories(@Nullable Map<String, Category> categories) {
        return new Preferences(channels, mutedTopics, categories, quietHours);
    }

    public Preferences withQuietHours(@Nullable QuietHours quietHours) {
        return new Preferences(channels, mutedTopics, categories, quietHours);
    }

    static @Nullable Preferences of(@Nullable Fields fields) {
        if (fields == null) return null;
        Fields hours = fields.object("quiet_hours");
        return new Preferences(
                fields.optionalTexts("channels"),
                fields.optionalTexts("muted_topics"),
                fields.object("categories") == null
                        ? null
                        : fields.objectsByName(
                                "categories",
                                category -> new Category(
                                        category.flag("muted"),
                                        category.optionalTexts("channels"),
                                        category.number("daily_max"))),
                hours == null
                        ? null
                        : new QuietHours(hours.text("from", ""), hours.text("to", ""), hours.text("timezone")));
    }

    Map<String, Object> json() {
        Map<String, Object> json = new LinkedHashMap<>();
        put(json, "channels", channels);
        put(json, "muted_topics", mutedTopics);
        if (categories != null) {
            Map<String, Object> all = new LinkedHashMap<>();
            categories.forEach((name, category) -> {
                Map<String, Object> one = new LinkedHashMap<>();
                put(one, "muted", category.isMuted());
                put(one, "channels", category.channels());
                put(one, "daily_max", category.dailyMax());
                all.put(name, one);
            });
            json.put("categories", all);
        }
        if (quietHours != null) {
            Map<String, Object> hours = new LinkedHashMap<>();
            hours.put("from", quietHours.from());
            hours.put("to", quietHours.to());
            put(hours, "timezone", quietHours.timezone());
            json.put("quiet_hours", hours);
        }
        return Collections.unmodifiableMap(json);
    }

    private static void put(Map<String, Object> json, String name, @Nullable Object value) {
        if (value != null) json.put(name, value);
    }
}
