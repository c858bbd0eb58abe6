package io.noroshi.client;

import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** Typed access to the members of a JSON object. A member of another type counts as absent. */
final class Fields {
    final Map<String, @Nullable Object> members;

    Fields(Map<String, @Nullable Object> members) {
        this.members = members;
    }

    @SuppressWarnings("unchecked")
    static @Nullable Fields of(@Nullable Object value) {
        return value instanceof Map<?, ?> map ? new Fields((Map<String, @Nullable Object>) map) : null;
    }

    static Fields parse(String text) throws Json.SyntaxError {
        return new Fields(Json.parseObject(text));
    }

    boolean has(String name) {
        return members.get(name) != null;
    }

    @Nullable
    Object value(String name) {
        return members.get(name);
    }

    @Nullable
    String text(String name) {
        return members.get(name) instanceof String text ? text : null;
    }

    String text(String name, String otherwise) {
        return members.get(name) instanceof String text ? text : otherwise;
    }

    @Nullable
    Long number(String name) {
        return members.get(name) instanceof Number number ? (Long) number.longValue() : null;
    }

    long number(String name, long otherwise) {
        return members.get(name) instanceof Number number ? number.longValue() : otherwise;
    }

    @Nullable
    Double decimal(String name) {
        return members.get(name) instanceof Number number ? (Double) number.doubleValue() : null;
    }

    @Nullable
    Boolean flag(String name) {
        return members.get(name) instanceof Boolean flag ? flag : null;
    }

    @Nullable
    Fields object(String name) {
        return of(members.get(name));
    }

    @Nullable
    Map<String, @Nullable Object> map(String name) {
        Fields object = object(name);
        return object == null ? null : Collections.unmodifiableMap(object.members);
    }

    List<String> texts(String name) {
        List<String> texts = new ArrayList<>();
        if (members.get(name) instanceof List<?> list)
            for (Object one : list) if (one instanceof String text) texts.add(text);
        return Collections.unmodifiableList(texts);
    }

    @Nullable
    List<String> optionalTexts(String name) {
        return members.get(name) instanceof List<?> ? texts(name) : null;
    }

    <T> List<T> objects(String name, Function<Fields, T> convert) {
        List<T> all = new ArrayList<>();
        if (members.get(name) instanceof List<?> list)
            for (Object one : list) {
                Fields object = of(one);
                if (object != null) all.add(convert.apply(object));
            }
        return Collections.unmodifiableList(all);
    }

    <T> Map<String, T> objectsByName(String name, Function<Fields, T> convert) {
        Map<String, T> all = new LinkedHashMap<>();
        Fields object = object(name);
        if (object != null)
            for (Map.Entry<String, @Nullable Object> member : object.members.entrySet()) {
                Fields one = of(member.getValue());
                if (one != null) all.put(member.getKey(), convert.apply(one));
            }
        return Collections.unmodifiableMap(all);
    }

    Map<String, Long> numbers(String name) {
        Map<String, Long> all = new LinkedHashMap<>();
        Fields object = object(name);
        if (object != null)
            for (Map.Entry<String, @Nullable Object> member : object.members.entrySet())
                if (member.getValue() instanceof Number number) all.put(member.getKey(), number.longValue());
        return Collections.unmodifiableMap(all);
    }

    @Nullable
    Instant time(String name) {
        String text = text(name);
        if (text == null) return null;
        try {
            return OffsetDateTime.parse(text).toInstant();
        } catch (DateTimeParseException notATime) {
            return null;
        }
    }
}
