package io.noroshi.testing;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** A node of its own: the binary that {@code NOROSHI_BIN} names, on free ports, with its data in a temporary folder. */
public final class Node implements AutoCloseable {
    public static final String KEY = "jvm-key-with-all-scopes";
    public static final String JWT_SECRET = "jvm-secret-of-at-least-thirty-two-bytes";

    private static final HttpClient HTTP =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    public final int port;
    private final int adminPort;
    private final Path data;
    private Process process;

    private Node() throws IOException {
        port = freePort();
        adminPort = freePort();
        data = Files.createTempDirectory("noroshi-jvm-");
        spawn();
    }

    /** Starts a node. */
    public static Node start() throws IOException {
        return new Node();
    }

    /** Starts the process on the same ports with the same data, after a kill or a drain. */
    public void spawn() throws IOException {
        String binary =
                Objects.requireNonNull(System.getenv("NOROSHI_BIN"), "NOROSHI_BIN must name the binary of a node");
        ProcessBuilder builder = new ProcessBuilder(
                binary,
                "serve",
                "--dev",
                "--data",
                data.toString(),
                "--http",
                "127.0.0.1:" + port,
                "--admin",
                "127.0.0.1:" + adminPort);
        builder.environment().put("NOROSHI_DEV_KEY", KEY);
        builder.environment().put("NOROSHI_DEV_JWT_SECRET", JWT_SECRET);
        File log = data.resolve("log").toFile();
        process = builder.redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log))
                .start();
        until("the node to be ready", 60, () -> {
            if (!process.isAlive()) throw new IllegalStateException("the node ended: " + log());
            try {
                return HTTP.send(
                                        HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + adminPort + "/readyz"))
                                                .timeout(Duration.ofSeconds(5))
                                                .build(),
                                        HttpResponse.BodyHandlers.discarding())
                                .statusCode()
                        == 200;
            } catch (IOException notYet) {
                return false;
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        });
    }

    public String url() {
        return "http://127.0.0.1:" + port;
    }

    private String log() {
        try {
            return Files.readString(data.resolve("log"));
        } catch (IOException none) {
            return "";
        }
    }

    /** kill -9 */
    public void kill() {
        process.destroyForcibly();
        await();
    }

    /** SIGTERM: the node drains and ends. */
    public void drain() {
        process.destroy();
        await();
    }

    private void await() {
        try {
            if (!process.waitFor(60, TimeUnit.SECONDS)) throw new IllegalStateException("the node does not end");
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** Calls the API with the key of the node. */
    public String call(String method, String path, String body, String... headers) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url() + path))
                .timeout(Duration.ofSeconds(20))
                .method(
                        method,
                        body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body))
                .header("Authorization", "Bearer " + KEY)
                .header("Content-Type", "application/json");
        if (headers.length > 0) request.headers(headers);
        try {
            HttpResponse<String> answer = HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() / 100 != 2)
                throw new IllegalStateException(method + " " + path + ": " + answer.statusCode() + " " + answer.body());
            return answer.body();
        } catch (IOException lost) {
            throw new UncheckedIOException(lost);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** A JWT of a device, whose user is {@code user-of-DEVICE}. */
    public static String jwt(String device, long lifetimeSeconds) {
        long now = System.currentTimeMillis() / 1_000;
        String text = encode("{\"alg\":\"HS256\",\"typ\":\"JWT\"}")
                + "."
                + encode("{\"sub\":\"user-of-" + device + "\",\"device\":\"" + device + "\",\"iat\":" + now
                        + ",\"exp\":" + (now + lifetimeSeconds) + "}");
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(JWT_SECRET.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
            byte[] signature = mac.doFinal(text.getBytes(StandardCharsets.US_ASCII));
            return text + "." + Base64.getUrlEncoder().withoutPadding().encodeToString(signature);
        } catch (GeneralSecurityException cause) {
            throw new IllegalStateException(cause);
        }
    }

    private static String encode(String text) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    /** Waits for a condition, at most a minute: a busy machine is slow. */
    public static void until(String what, BooleanSupplier condition) {
        until(what, 60, condition);
    }

    /** Waits for a condition. */
    public static void until(String what, int seconds, BooleanSupplier condition) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) throw new AssertionError("waited " + seconds + " s for " + what);
            sleep(10);
        }
    }

    public static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** A port that is free now, below the range from which outgoing connections take theirs: the node returns to it. */
    static int freePort() throws IOException {
        for (int attempt = 0; ; attempt++) {
            int port = ThreadLocalRandom.current().nextInt(11_000, 32_000);
            try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                return socket.getLocalPort();
            } catch (BindException taken) {
                if (attempt > 100) throw taken;
            }
        }
    }

    @Override
    public void close() {
        process.destroyForcibly();
        await();
        try (Stream<Path> files = Files.walk(data)) {
            List<Path> all = files.sorted(Comparator.reverseOrder()).toList();
            for (Path file : all) Files.deleteIfExists(file);
        } catch (IOException left) {
            // A temporary folder.
        }
    }
}
