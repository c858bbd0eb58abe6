// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;

/** Exactly one. Unknown users and devices count; they are no error. */
public sealed interface To {

    /** {@code users} */
    static To users(List<String> users) {
        return new Users(users);
    }

    /** {@code users} */
    static To users(String... users) {
        return new Users(List.of(users));
    }

    /**
     * With {@code users}.
     *
     * @param users {@code users}
     */
    record Users(List<String> users) implements To {}

    /** {@code devices} */
    static To devices(List<String> devices) {
        return new Devices(devices);
    }

    /** {@code devices} */
    static To devices(String... devices) {
        return new Devices(List.of(devices));
    }

    /**
     * With {@code devices}.
     *
     * @param devices {@code devices}
     */
    record Devices(List<String> devices) implements To {}

    /** 1 to 255 bytes of UTF-8 without control characters, {@code +} and {@code #}, not starting with {@code $}. */
    static To topic(String topic) {
        return new Topic(topic);
    }

    /**
     * With {@code topic}.
     *
     * @param topic 1 to 255 bytes of UTF-8 without control characters, {@code +} and {@code #}, not starting with
     *     {@code $}.
     */
    record Topic(String topic) implements To {}

    /** FCM condition syntax, at most 5 topics: {@code 'a' in topics && !('b' in topics)}. */
    static To condition(String condition) {
        return new Condition(condition);
    }

    /**
     * With {@code condition}.
     *
     * @param condition FCM condition syntax, at most 5 topics: {@code 'a' in topics && !('b' in topics)}.
     */
    record Condition(String condition) implements To {}

    /** {@code everyone} */
    static To everyone() {
        return new Everyone(true);
    }

    /**
     * With {@code everyone}.
     *
     * @param everyone {@code everyone}
     */
    record Everyone(boolean everyone) implements To {}
}
