package io.noroshi.server.codegen;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The generated types are those of the OpenAPI document. */
class GeneratedTest {
    private static final Path FOLDER = Path.of("src/main/java/io/noroshi/server");

    @Test
    void theTypesAreCurrent() throws Exception {
        Map<String, String> generated = Generator.generate(openapi());
        Map<String, String> committed = Generator.committed(FOLDER);
        List<String> outdated = new ArrayList<>();
        for (String name : generated.keySet())
            if (!tokens(generated.get(name)).equals(tokens(committed.getOrDefault(name, "")))) outdated.add(name);
        for (String name : committed.keySet()) if (!generated.containsKey(name)) outdated.add(name);
        assertEquals(List.of(), outdated, "run sdks/jvm/generate");
    }

    /** The text without what the formatter changes. */
    private static String tokens(String java) {
        return java.replaceAll("[\\s*]+", "");
    }

    private static Path openapi() {
        for (Path folder = Path.of("").toAbsolutePath(); folder != null; folder = folder.getParent())
            if (Files.exists(folder.resolve("crates/api/openapi.json")))
                return folder.resolve("crates/api/openapi.json");
        throw new IllegalStateException("there is no crates/api/openapi.json above this folder");
    }
}
