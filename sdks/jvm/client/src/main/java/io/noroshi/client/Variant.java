package io.noroshi.client;

import org.jspecify.annotations.Nullable;

/**
 * The variant of an experiment in which the device participates.
 *
 * @param variant its name
 * @param data its data, as values of the platform
 */
public record Variant(String variant, @Nullable Object data) {
    static Variant of(Fields fields) {
        return new Variant(fields.text("variant", ""), fields.value("data"));
    }

    /** {@code data} as JSON, for a JSON library. */
    public String dataJson() {
        return Json.write(data);
    }
}
