package io.noroshi.client;

import static org.junit.jupiter.api.Assertions.assertFalse;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** The core of the protocol has no input or output, no threads, and no clock or random numbers of its own. */
class PurityTest {
    private static final List<String> CORE = List.of(
            "Machine", "Inflow", "Outbox", "Tokens", "Timers", "Effect", "Backoff", "CloseReasons", "Json", "Fields");

    private static final Pattern IMPURE =
            Pattern.compile("java\\.(io|net|nio\\.file|util\\.concurrent)\\b|okhttp3|okio|Thread"
                    + "|synchronized|currentTimeMillis|nanoTime|\\.now\\(\\)|Math\\.random|new Random");

    @Test
    void theCoreIsPure() throws Exception {
        for (String name : CORE) {
            String source = Files.readString(Path.of("src/main/java/io/noroshi/client/" + name + ".java"));
            // The machine's own now() is the time that its caller stated.
            assertFalse(IMPURE.matcher(source.replace("machine.now()", "")).find(), name);
        }
    }
}
