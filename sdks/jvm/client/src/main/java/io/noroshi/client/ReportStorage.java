package io.noroshi.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.jspecify.annotations.Nullable;

/** Keeps reports of opened messages until the service has them, across the end of the process. */
public interface ReportStorage {
    /** What was saved last; {@code null}: nothing. */
    @Nullable
    String load() throws IOException;

    /** Replaces what was saved. {@code null}: nothing waits. */
    void save(@Nullable String reports) throws IOException;

    /** Keeps them in a file, which belongs to one client at a time. */
    static ReportStorage file(Path file) {
        return new ReportStorage() {
            @Override
            public @Nullable String load() throws IOException {
                try {
                    return Files.readString(file);
                } catch (NoSuchFileException none) {
                    return null;
                }
            }

            @Override
            public void save(@Nullable String reports) throws IOException {
                if (reports == null) {
                    Files.deleteIfExists(file);
                    return;
                }
                Path written = file.resolveSibling(file.getFileName() + ".new");
                Files.writeString(written, reports, StandardCharsets.UTF_8);
                Files.move(written, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
            }
        };
    }
}
