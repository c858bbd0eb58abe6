// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What the user sees, hears and can press. At least one of {@code title}, {@code body}, {@code image}, {@code url},
 * {@code badge}; at most 4 KiB of JSON in total. Live and inbox clients receive it unchanged; docs/push.md says what
 * each push service makes of it.
 *
 * @param title {@code title}
 * @param body {@code body}
 * @param image An http or https URL.
 * @param url Absolute URL that a tap opens. The schemes {@code javascript}, {@code data} and {@code vbscript} are
 *     rejected.
 * @param level How much it may interrupt, in Apple's terms ({@code interruption-level}). {@code passive} is silent in
 *     browsers too. Android before 8: the priority; later versions use the channel's importance.
 * @param relevance iOS features the notification with the highest score in its summary ({@code relevance-score}).
 * @param sound {@code default}, or a sound file of the app. Android reads the name without its extension. One of these
 *     types: String, Sound.
 * @param badge The number on the app's icon. 0 clears it, except on Android. {@code "unread"}: the number of the user's
 *     unread items when the push is sent. One of these types: Integer, String.
 * @param thread Groups notifications on iOS ({@code thread-id}).
 * @param actions Buttons, with distinct ids. Browsers show at most two. iOS shows those that the app registered for the
 *     {@code category}; Android's app builds them from {@code noroshi_actions} in the data.
 * @param mutable The app may change the notification before the user sees it: {@code mutable-content} on iOS (default:
 *     true with an image), {@code mutable} in declarative Web Push (default: true).
 * @param contentAvailable Also wakes the app on iOS ({@code content-available}).
 * @param category A category that the app registered on iOS, with its buttons.
 * @param icon An http or https URL, for browsers.
 * @param lang Language tag of the texts, for browsers.
 * @param dir Direction of the texts, for browsers.
 * @param androidChannel Notification channel of the app (FCM's {@code channel_id}).
 * @param androidIcon Drawable resource of the app.
 * @param androidColor Colour of the icon, {@code #rrggbb}.
 * @param androidClickAction Intent action that a tap starts, instead of the app's launcher activity.
 * @param fcmAnalyticsLabel Label in FCM's statistics. FCM allows 100 different labels a day.
 */
public record Shown(
        @Nullable String title,
        @Nullable String body,
        @Nullable String image,
        @Nullable String url,
        @Nullable ShownLevel level,
        @Nullable Double relevance,
        @Nullable Object sound,
        @Nullable Object badge,
        @Nullable String thread,
        @Nullable List<Action> actions,
        @Nullable Boolean mutable,
        @JsonProperty("content_available") @Nullable Boolean contentAvailable,
        @Nullable String category,
        @Nullable String icon,
        @Nullable String lang,
        @Nullable ShownDir dir,
        @JsonProperty("android_channel") @Nullable String androidChannel,
        @JsonProperty("android_icon") @Nullable String androidIcon,
        @JsonProperty("android_color") @Nullable String androidColor,
        @JsonProperty("android_click_action") @Nullable String androidClickAction,
        @JsonProperty("fcm_analytics_label") @Nullable String fcmAnalyticsLabel) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link Shown}. */
    public static final class Builder {
        private @Nullable String title;
        private @Nullable String body;
        private @Nullable String image;
        private @Nullable String url;
        private @Nullable ShownLevel level;
        private @Nullable Double relevance;
        private @Nullable Object sound;
        private @Nullable Object badge;
        private @Nullable String thread;
        private @Nullable List<Action> actions;
        private @Nullable Boolean mutable;
        private @Nullable Boolean contentAvailable;
        private @Nullable String category;
        private @Nullable String icon;
        private @Nullable String lang;
        private @Nullable ShownDir dir;
        private @Nullable String androidChannel;
        private @Nullable String androidIcon;
        private @Nullable String androidColor;
        private @Nullable String androidClickAction;
        private @Nullable String fcmAnalyticsLabel;

        private Builder() {}

        /** {@code title} */
        public Builder title(@Nullable String title) {
            this.title = title;
            return this;
        }

        /** {@code body} */
        public Builder body(@Nullable String body) {
            this.body = body;
            return this;
        }

        /** An http or https URL. */
        public Builder image(@Nullable String image) {
            this.image = image;
            return this;
        }

        /**
         * Absolute URL that a tap opens. The schemes {@code javascript}, {@code data} and {@code vbscript} are
         * rejected.
         */
        public Builder url(@Nullable String url) {
            this.url = url;
            return this;
        }

        /**
         * How much it may interrupt, in Apple's terms ({@code interruption-level}). {@code passive} is silent in
         * browsers too. Android before 8: the priority; later versions use the channel's importance.
         */
        public Builder level(@Nullable ShownLevel level) {
            this.level = level;
            return this;
        }

        /** iOS features the notification with the highest score in its summary ({@code relevance-score}). */
        public Builder relevance(@Nullable Double relevance) {
            this.relevance = relevance;
            return this;
        }

        /**
         * {@code default}, or a sound file of the app. Android reads the name without its extension. One of these
         * types: String, Sound.
         */
        public Builder sound(String sound) {
            this.sound = sound;
            return this;
        }

        /**
         * {@code default}, or a sound file of the app. Android reads the name without its extension. One of these
         * types: String, Sound.
         */
        public Builder sound(Sound sound) {
            this.sound = sound;
            return this;
        }

        /**
         * The number on the app's icon. 0 clears it, except on Android. {@code "unread"}: the number of the user's
         * unread items when the push is sent. One of these types: Integer, String.
         */
        public Builder badge(Integer badge) {
            this.badge = badge;
            return this;
        }

        /**
         * The number on the app's icon. 0 clears it, except on Android. {@code "unread"}: the number of the user's
         * unread items when the push is sent. One of these types: Integer, String.
         */
        public Builder badge(String badge) {
            this.badge = badge;
            return this;
        }

        /** Groups notifications on iOS ({@code thread-id}). */
        public Builder thread(@Nullable String thread) {
            this.thread = thread;
            return this;
        }

        /**
         * Buttons, with distinct ids. Browsers show at most two. iOS shows those that the app registered for the
         * {@code category}; Android's app builds them from {@code noroshi_actions} in the data.
         */
        public Builder actions(@Nullable List<Action> actions) {
            this.actions = actions;
            return this;
        }

        /**
         * The app may change the notification before the user sees it: {@code mutable-content} on iOS (default: true
         * with an image), {@code mutable} in declarative Web Push (default: true).
         */
        public Builder mutable(@Nullable Boolean mutable) {
            this.mutable = mutable;
            return this;
        }

        /** Also wakes the app on iOS ({@code content-available}). */
        public Builder contentAvailable(@Nullable Boolean contentAvailable) {
            this.contentAvailable = contentAvailable;
            return this;
        }

        /** A category that the app registered on iOS, with its buttons. */
        public Builder category(@Nullable String category) {
            this.category = category;
            return this;
        }

        /** An http or https URL, for browsers. */
        public Builder icon(@Nullable String icon) {
            this.icon = icon;
            return this;
        }

        /** Language tag of the texts, for browsers. */
        public Builder lang(@Nullable String lang) {
            this.lang = lang;
            return this;
        }

        /** Direction of the texts, for browsers. */
        public Builder dir(@Nullable ShownDir dir) {
            this.dir = dir;
            return this;
        }

        /** Notification channel of the app (FCM's {@code channel_id}). */
        public Builder androidChannel(@Nullable String androidChannel) {
            this.androidChannel = androidChannel;
            return this;
        }

        /** Drawable resource of the app. */
        public Builder androidIcon(@Nullable String androidIcon) {
            this.androidIcon = androidIcon;
            return this;
        }

        /** Colour of the icon, {@code #rrggbb}. */
        public Builder androidColor(@Nullable String androidColor) {
            this.androidColor = androidColor;
            return this;
        }

        /** Intent action that a tap starts, instead of the app's launcher activity. */
        public Builder androidClickAction(@Nullable String androidClickAction) {
            this.androidClickAction = androidClickAction;
            return this;
        }

        /** Label in FCM's statistics. FCM allows 100 different labels a day. */
        public Builder fcmAnalyticsLabel(@Nullable String fcmAnalyticsLabel) {
            this.fcmAnalyticsLabel = fcmAnalyticsLabel;
            return this;
        }

        public Shown build() {
            return new Shown(
                    title,
                    body,
                    image,
                    url,
                    level,
                    relevance,
                    sound,
                    badge,
                    thread,
                    actions,
                    mutable,
                    contentAvailable,
                    category,
                    icon,
                    lang,
                    dir,
                    androidChannel,
                    androidIcon,
                    androidColor,
                    androidClickAction,
                    fcmAnalyticsLabel);
        }
    }
}
