package io.noroshi.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** The test vectors of sdks/vectors and sdks/vectors/next, and what their players share. */
final class Vectors {
    /** 2026-01-01T00:00:00Z */
    static final long START_MS = 1_767_225_600_000L;

    record Vector(
            String file, String name, Fields options, List<Fields> tokens, List<Double> random, List<Step> steps) {
        String listener() {
            return options.text("listener", "sync");
        }

        Acknowledge acknowledge() {
            return Acknowledge.valueOf(options.text("acknowledge", "handled").toUpperCase());
        }

        List<Transport> transports() {
            List<Transport> all = new ArrayList<>();
            List<String> named = options.optionalTexts("transports");
            for (String one : named == null ? List.of("websocket", "sse") : named)
                if (one.equals("sse") || !Boolean.FALSE.equals(options.flag("websocket")))
                    all.add(Transport.valueOf(one.toUpperCase()));
            return all;
        }

        @Override
        public String toString() {
            return file + ": " + name;
        }
    }

    record Step(String name, @Nullable Object argument) {
        Fields fields() {
            return Objects.requireNonNull(Fields.of(argument));
        }

        @Override
        public String toString() {
            String text = Json.write(argument);
            return name + " " + text.substring(0, Math.min(300, text.length()));
        }
    }

    private Vectors() {}

    static Path sdks() {
        for (Path folder = Path.of("").toAbsolutePath(); folder != null; folder = folder.getParent())
            if (Files.exists(folder.resolve("sdks/vectors/schema.json"))) return folder.resolve("sdks");
        throw new IllegalStateException("there is no folder sdks/vectors: run the tests in a clone of the repository");
    }

    static List<Vector> all() throws IOException, Json.SyntaxError {
        List<Vector> all = new ArrayList<>();
        Path folder = sdks().resolve("vectors");
        List<Path> files = new ArrayList<>(files(folder));
        files.addAll(files(folder.resolve("next")));
        for (Path file : files)
            for (Fields vector : Fields.parse(Files.readString(file)).objects("vectors", fields -> fields))
                all.add(read(folder.relativize(file).toString(), vector));
        return all;
    }

    /** Empty if there is no such folder. */
    private static List<Path> files(Path folder) throws IOException {
        if (!Files.isDirectory(folder)) return List.of();
        try (Stream<Path> list = Files.list(folder)) {
            return list.filter(file -> file.toString().endsWith(".json") && !file.endsWith("schema.json"))
                    .sorted()
                    .toList();
        }
    }

    private static Vector read(String file, Fields vector) {
        List<Double> random = new ArrayList<>();
        if (vector.value("random") instanceof List<?> list)
            for (Object one : list) random.add(((Number) Objects.requireNonNull(one)).doubleValue());
        List<Step> steps = new ArrayList<>();
        for (Fields step : vector.objects("steps", fields -> fields))
            step.members.forEach((name, argument) -> steps.add(new Step(name, argument)));
        steps.add(new Step("expect", Map.of()));
        Fields options = vector.object("options");
        return new Vector(
                file,
                vector.text("name", ""),
                options == null ? new Fields(Map.of()) : options,
                vector.has("tokens")
                        ? vector.objects("tokens", fields -> fields)
                        : List.of(new Fields(Map.of("name", "t1"))),
                random,
                steps);
    }

    /** The token of a vector: a JWT without a signature whose claim {@code jti} is its name, or an opaque text. */
    static String token(Fields token, long nowMs) {
        String name = token.text("name", "");
        Long lifetime = token.number("lifetime_s");
        if (lifetime == null) return name;
        long iat = nowMs / 1_000 + token.number("clock_ahead_s", 0);
        Map<String, Object> claims = new LinkedHashMap<>();
        claims.put("jti", name);
        claims.put("exp", iat + lifetime);
        if (!Boolean.FALSE.equals(token.flag("iat"))) claims.put("iat", iat);
        return encode(Map.of("alg", "none")) + "." + encode(claims) + ".x";
    }

    private static String encode(Object value) {
        return Base64.getUrlEncoder()
                .withoutPadding()
                .encodeToString(Json.write(value).getBytes(StandardCharsets.UTF_8));
    }

    static String tokenName(String token) {
        String[] parts = token.split("\\.");
        if (parts.length != 3) return token;
        try {
            return Fields.parse(new String(Base64.getUrlDecoder().decode(parts[1]), StandardCharsets.UTF_8))
                    .text("jti", token);
        } catch (IllegalArgumentException | Json.SyntaxError opaque) {
            return token;
        }
    }

    /** Sockets have no common order: each kind of observation is compared in its own. */
    static Map<String, List<Object>> byKind(List<?> observations) {
        Map<String, List<Object>> kinds = new LinkedHashMap<>();
        for (String kind : List.of("open", "frame", "close", "request")) kinds.put(kind, new ArrayList<>());
        for (Object one : observations)
            for (String kind : kinds.keySet())
                if (((Map<?, ?>) one).containsKey(kind)) {
                    kinds.get(kind).add(one);
                    break;
                }
        return kinds;
    }

    /** The events that players compare, in the form of the vectors. {@code null} for other effects. */
    static @Nullable Map<String, Object> local(Effect effect, boolean hasUnread) {
        Map<String, Object> seen = new LinkedHashMap<>();
        if (effect instanceof Effect.AskToken ask)
            seen.put("token", ask.reason().toString());
        else if (effect instanceof Effect.Pass pass)
            seen.put("message", pass.message().id());
        else if (effect instanceof Effect.StateChanged changed) {
            State state = changed.state();
            seen.put("state", state.status().name().toLowerCase());
            if (state.reason() != null) seen.put("reason", state.reason());
            if (state.retryIn() != null) seen.put("in_ms", state.retryIn().toMillis());
            if (state.transport() != null)
                seen.put("transport", state.transport().toString());
        } else if (effect instanceof Effect.RecoveryEnded ended) {
            seen.put("recovered", ended.recovered().topic());
            seen.put("complete", complete(ended.recovered()));
        } else if (effect instanceof Effect.SubscriptionDenied denied) {
            seen.put("denied", denied.denied().topic());
            seen.put("code", denied.denied().code());
            seen.put("reason", denied.denied().reason());
        } else if (effect instanceof Effect.ItemsChangedBy items) {
            seen.put("items", items.event().event());
            seen.put("ids", items.event().ids());
        } else if (effect instanceof Effect.UnreadChanged unread && hasUnread) {
            seen.put("unread", unread.counts().unread());
            seen.put("categories", unread.counts().categories());
        } else if (effect instanceof Effect.Failed failed)
            seen.put("error", failed.error().code());
        else return null;
        return seen;
    }

    private static @Nullable Boolean complete(Recovered recovered) {
        return switch (recovered.completeness()) {
            case COMPLETE -> Boolean.TRUE;
            case INCOMPLETE -> Boolean.FALSE;
            case UNKNOWN -> null;
        };
    }
}
