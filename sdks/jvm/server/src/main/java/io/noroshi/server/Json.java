package io.noroshi.server;

import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.DeserializationContext;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializerProvider;
import com.fasterxml.jackson.databind.deser.std.StdDeserializer;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.module.SimpleModule;
import com.fasterxml.jackson.databind.ser.std.StdSerializer;
import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.format.DateTimeParseException;

/** The JSON of the API: absent fields instead of {@code null}, RFC 3339, durations such as {@code 90s}. */
final class Json {
    /** Accepts what later versions of the service add. */
    static final ObjectMapper MAPPER = JsonMapper.builder()
            .defaultPropertyInclusion(
                    JsonInclude.Value.construct(JsonInclude.Include.NON_NULL, JsonInclude.Include.ALWAYS))
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
            .disable(DeserializationFeature.FAIL_ON_INVALID_SUBTYPE)
            .disable(DeserializationFeature.FAIL_ON_NULL_FOR_PRIMITIVES)
            .enable(DeserializationFeature.READ_UNKNOWN_ENUM_VALUES_USING_DEFAULT_VALUE)
            .addModule(new SimpleModule("noroshi")
                    .addSerializer(Duration.class, new WriteDuration())
                    .addDeserializer(Duration.class, new ReadDuration())
                    .addSerializer(Instant.class, new WriteInstant())
                    .addDeserializer(Instant.class, new ReadInstant()))
            .build();

    private Json() {}

    private static final class WriteDuration extends StdSerializer<Duration> {
        private static final long serialVersionUID = 1;

        WriteDuration() {
            super(Duration.class);
        }

        @Override
        public void serialize(Duration duration, JsonGenerator out, SerializerProvider provider) throws IOException {
            out.writeString(duration.toMillis() % 1_000 == 0 ? duration.toSeconds() + "s" : duration.toMillis() + "ms");
        }
    }

    private static final class ReadDuration extends StdDeserializer<Duration> {
        private static final long serialVersionUID = 1;

        ReadDuration() {
            super(Duration.class);
        }

        @Override
        public Duration deserialize(JsonParser in, DeserializationContext context) throws IOException {
            if (in.currentToken() == JsonToken.VALUE_NUMBER_INT) return Duration.ofSeconds(in.getLongValue());
            String text = in.getText();
            String unit = text.replaceFirst("^[0-9]+", "");
            String number = text.substring(0, text.length() - unit.length());
            if (number.isEmpty()) return (Duration) context.handleWeirdStringValue(Duration.class, text, "no number");
            long value = Long.parseLong(number);
            return switch (unit) {
                case "ms" -> Duration.ofMillis(value);
                case "s", "" -> Duration.ofSeconds(value);
                case "m" -> Duration.ofMinutes(value);
                case "h" -> Duration.ofHours(value);
                case "d" -> Duration.ofDays(value);
                default -> (Duration) context.handleWeirdStringValue(Duration.class, text, "an unknown unit");
            };
        }
    }

    private static final class WriteInstant extends StdSerializer<Instant> {
        private static final long serialVersionUID = 1;

        WriteInstant() {
            super(Instant.class);
        }

        @Override
        public void serialize(Instant time, JsonGenerator out, SerializerProvider provider) throws IOException {
            out.writeString(time.toString());
        }
    }

    private static final class ReadInstant extends StdDeserializer<Instant> {
        private static final long serialVersionUID = 1;

        ReadInstant() {
            super(Instant.class);
        }

        @Override
        public Instant deserialize(JsonParser in, DeserializationContext context) throws IOException {
            try {
                return OffsetDateTime.parse(in.getText()).toInstant();
            } catch (DateTimeParseException notATime) {
                return (Instant) context.handleWeirdStringValue(Instant.class, in.getText(), "not RFC 3339");
            }
        }
    }
}
