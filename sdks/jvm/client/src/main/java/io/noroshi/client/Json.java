package io.noroshi.client;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * JSON (RFC 8259) as values of the platform: {@code Map}, {@code List}, {@code String}, {@code Long}, {@code Double} or
 * {@code BigDecimal}, {@code Boolean} and {@code null}. Uses no reflection, so that it works under R8, on Android and
 * in native images.
 */
final class Json {
    private static final int DEPTH_MAX = 128;

    static final class SyntaxError extends Exception {
        private static final long serialVersionUID = 1;

        SyntaxError(String message) {
            super(message);
        }
    }

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static @Nullable Object parse(String text) throws SyntaxError {
        Json json = new Json(text);
        json.space();
        Object value = json.value(0);
        json.space();
        if (json.at < text.length()) throw json.error("text after the value");
        return value;
    }

    /** The members of an object. */
    @SuppressWarnings("unchecked")
    static Map<String, @Nullable Object> parseObject(String text) throws SyntaxError {
        if (parse(text) instanceof Map<?, ?> map) return (Map<String, @Nullable Object>) map;
        throw new SyntaxError("not an object");
    }

    private @Nullable Object value(int depth) throws SyntaxError {
        if (depth > DEPTH_MAX) throw error("nested too deeply");
        return switch (peek()) {
            case '{' -> object(depth);
            case '[' -> array(depth);
            case '"' -> string();
            case 't' -> word("true", true);
            case 'f' -> word("false", false);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, @Nullable Object> object(int depth) throws SyntaxError {
        Map<String, @Nullable Object> members = new LinkedHashMap<>();
        at++;
        space();
        if (peek() == '}') {
            at++;
            return members;
        }
        while (true) {
            if (peek() != '"') throw error("a name is missing");
            String name = string();
            space();
            if (peek() != ':') throw error("a colon is missing");
            at++;
            space();
            members.put(name, value(depth + 1));
            space();
            char next = peek();
            at++;
            if (next == '}') return members;
            if (next != ',') throw error("a comma is missing");
            space();
        }
    }

    private List<@Nullable Object> array(int depth) throws SyntaxError {
        List<@Nullable Object> elements = new ArrayList<>();
        at++;
        space();
        if (peek() == ']') {
            at++;
            return elements;
        }
        while (true) {
            elements.add(value(depth + 1));
            space();
            char next = peek();
            at++;
            if (next == ']') return elements;
            if (next != ',') throw error("a comma is missing");
            space();
        }
    }

    private String string() throws SyntaxError {
        at++;
        int start = at;
        while (true) {
            char next = peek();
            if (next == '"') return text.substring(start, at++);
            if (next == '\\') break;
            if (next < ' ') throw error("a control character");
            at++;
        }
        StringBuilder out = new StringBuilder(text.substring(start, at));
        while (true) {
            char next = peek();
            at++;
            if (next == '"') return out.toString();
            if (next < ' ') throw error("a control character");
            if (next != '\\') {
                out.append(next);
                continue;
            }
            char escaped = peek();
            at++;
            switch (escaped) {
                case '"', '\\', '/' -> out.append(escaped);
                case 'b' -> out.append('\b');
                case 'f' -> out.append('\f');
                case 'n' -> out.append('\n');
                case 'r' -> out.append('\r');
                case 't' -> out.append('\t');
                case 'u' -> out.append(unicode());
                default -> throw error("an unknown escape");
            }
        }
    }

    private char unicode() throws SyntaxError {
        int code = 0;
        for (int i = 0; i < 4; i++) {
            int digit = Character.digit(peek(), 16);
            if (digit < 0) throw error("not a hexadecimal digit");
            code = code * 16 + digit;
            at++;
        }
        return (char) code;
    }

    private @Nullable Object word(String word, @Nullable Object value) throws SyntaxError {
        if (!text.startsWith(word, at)) throw error("not a value");
        at += word.length();
        return value;
    }

    private Object number() throws SyntaxError {
        int start = at;
        if (at < text.length() && text.charAt(at) == '-') at++;
        int whole = at;
        digits();
        if (text.charAt(whole) == '0' && at > whole + 1) throw error("a number begins with 0");
        boolean isInteger = true;
        if (at < text.length() && text.charAt(at) == '.') {
            isInteger = false;
            at++;
            digits();
        }
        if (at < text.length() && (text.charAt(at) | 32) == 'e') {
            isInteger = false;
            at++;
            if (at < text.length() && (text.charAt(at) == '+' || text.charAt(at) == '-')) at++;
            digits();
        }
        String number = text.substring(start, at);
        if (!isInteger) return Double.parseDouble(number);
        try {
            return Long.parseLong(number);
        } catch (NumberFormatException tooLarge) {
            return new BigDecimal(number);
        }
    }

    private void digits() throws SyntaxError {
        int start = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') at++;
        if (at == start) throw error("not a value");
    }

    private void space() {
        while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) at++;
    }

    private char peek() throws SyntaxError {
        if (at >= text.length()) throw error("the text ends");
        return text.charAt(at);
    }

    private SyntaxError error(String message) {
        return new SyntaxError("JSON at character " + at + ": " + message);
    }

    static String write(@Nullable Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value, 0);
        return out.toString();
    }

    private static void write(StringBuilder out, @Nullable Object value, int depth) {
        if (depth > DEPTH_MAX) throw new IllegalArgumentException("JSON is nested too deeply");
        if (value == null || value instanceof Boolean) out.append(value);
        else if (value instanceof CharSequence) quote(out, value.toString());
        else if (value instanceof Number number) {
            double approximate = number.doubleValue();
            boolean isFloat = number instanceof Double || number instanceof Float;
            if (isFloat && (Double.isNaN(approximate) || Double.isInfinite(approximate)))
                throw new IllegalArgumentException("JSON has no " + number);
            out.append(number);
        } else if (value instanceof Map<?, ?> map) {
            char before = '{';
            for (Map.Entry<?, ?> member : map.entrySet()) {
                out.append(before);
                quote(out, String.valueOf(member.getKey()));
                out.append(':');
                write(out, member.getValue(), depth + 1);
                before = ',';
            }
            out.append(before == '{' ? "{}" : "}");
        } else if (value instanceof Collection<?> list) {
            char before = '[';
            for (Object element : list) {
                out.append(before);
                write(out, element, depth + 1);
                before = ',';
            }
            out.append(before == '[' ? "[]" : "]");
        } else throw new IllegalArgumentException("no JSON for " + value.getClass());
    }

    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char next = text.charAt(i);
            switch (next) {
                case '"' -> out.append("\\\"");
                case '\\' -> out.append("\\\\");
                case '\n' -> out.append("\\n");
                case '\r' -> out.append("\\r");
                case '\t' -> out.append("\\t");
                default -> {
                    if (next < ' ' || Character.isSurrogate(next) && !isPaired(text, i))
                        out.append(String.format("\\u%04x", (int) next));
                    else out.append(next);
                }
            }
        }
        out.append('"');
    }

    private static boolean isPaired(String text, int at) {
        return Character.isHighSurrogate(text.charAt(at))
                ? at + 1 < text.length() && Character.isLowSurrogate(text.charAt(at + 1))
                : at > 0 && Character.isHighSurrogate(text.charAt(at - 1));
    }
}
