package io.noroshi.examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.noroshi.testing.Node;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The README leads to a first message, and its other programs compile. */
class ReadmeTest {
    private static final Pattern BLOCK = Pattern.compile("```(\\w+)\\n(.*?)```", Pattern.DOTALL);
    private static final Pattern CLASS = Pattern.compile("public class (\\w+)");

    @Test
    void leadsToAFirstMessage(@TempDir Path folder) throws Exception {
        List<String> programs = blocks("java");
        assertTrue(programs.size() >= 4);
        List<Path> files = new ArrayList<>();
        for (String program : programs) {
            Matcher name = CLASS.matcher(program);
            // The others are bodies of methods.
            boolean isClass = name.find();
            String file = isClass ? name.group(1) : "Snippet" + files.size();
            files.add(folder.resolve(file + ".java"));
            Files.writeString(files.get(files.size() - 1), isClass ? program : snippet(file, program));
        }
        List<String> arguments =
                new ArrayList<>(List.of("-cp", System.getProperty("java.class.path"), "-d", folder.toString()));
        files.forEach(file -> arguments.add(file.toString()));
        assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null, null, arguments.toArray(new String[0])));

        try (Node node = Node.start()) {
            Process listening = run(folder, node, "Listen");
            try {
                Path output = folder.resolve("Listen.out");
                Node.until("the client to be connected", () -> read(output).contains("CONNECTED"));
                assertTrue(run(folder, node, "Send").waitFor(60, TimeUnit.SECONDS));
                Node.until("the message", () -> read(output).contains("Hello"));
            } finally {
                listening.destroyForcibly();
            }
        }
    }

    private static String snippet(String name, String body) {
        StringBuilder imports = new StringBuilder();
        StringBuilder rest = new StringBuilder();
        body.lines().forEach(line -> (line.startsWith("import ") ? imports : rest)
                .append(line)
                .append("\n"));
        return imports + "class " + name
                + " { void run(io.noroshi.server.Noroshi noroshi, io.noroshi.client.NoroshiClient client) throws Exception {\n"
                + rest + "}}";
    }

    private static Process run(Path folder, Node node, String program) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-XX:TieredStopAtLevel=1",
                "-cp",
                folder + System.getProperty("path.separator") + System.getProperty("java.class.path"),
                program);
        builder.environment()
                .putAll(Map.of(
                        "NOROSHI_URL", node.url(), "NOROSHI_KEY", Node.KEY, "NOROSHI_JWT_SECRET", Node.JWT_SECRET));
        return builder.redirectErrorStream(true)
                .redirectOutput(folder.resolve(program + ".out").toFile())
                .start();
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException notYet) {
            return "";
        }
    }

    private static List<String> blocks(String language) throws IOException {
        List<String> found = new ArrayList<>();
        Matcher blocks = BLOCK.matcher(Files.readString(Path.of("../README.md")).replaceAll("(?m)^ {3}", ""));
        while (blocks.find()) if (blocks.group(1).equals(language)) found.add(blocks.group(2));
        return found;
    }
}
