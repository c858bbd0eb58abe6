package io.noroshi.server;

import java.util.Collections;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.jspecify.annotations.Nullable;

/**
 * A list of the API, read page by page while it is iterated. Each iteration begins at the first page.
 *
 * <pre>{@code
 * for (Device device : noroshi.devices().list()) …
 * }</pre>
 *
 * @param <T> the type of the entries
 */
public final class Pages<T> implements Iterable<T> {
    private final @Nullable String first;
    private final Function<@Nullable String, CompletableFuture<Page<T>>> read;

    Pages(@Nullable String first, Function<@Nullable String, CompletableFuture<Page<T>>> read) {
        this.first = first;
        this.read = read;
    }

    /** The first page. */
    public Page<T> firstPage() {
        return Http.await(firstPageAsync());
    }

    /** The first page, without a wait. */
    public CompletableFuture<Page<T>> firstPageAsync() {
        return read.apply(first);
    }

    /** The page after another one, without a wait: {@code after} is its {@code next}. */
    public CompletableFuture<Page<T>> pageAsync(String after) {
        return read.apply(after);
    }

    /** The pages, each read when it is needed. */
    public Iterable<Page<T>> pages() {
        return () -> new Iterator<>() {
            private @Nullable String after = first;
            private boolean isOver;

            @Override
            public boolean hasNext() {
                return !isOver;
            }

            @Override
            public Page<T> next() {
                if (isOver) throw new NoSuchElementException();
                Page<T> page = Http.await(read.apply(after));
                after = page.next();
                isOver = after == null;
                return page;
            }
        };
    }

    @Override
    public Iterator<T> iterator() {
        Iterator<Page<T>> pages = pages().iterator();
        return new Iterator<>() {
            private Iterator<T> items = Collections.emptyIterator();

            @Override
            public boolean hasNext() {
                while (!items.hasNext() && pages.hasNext())
                    items = pages.next().items().iterator();
                return items.hasNext();
            }

            @Override
            public T next() {
                if (!hasNext()) throw new NoSuchElementException();
                return items.next();
            }
        };
    }

    /** The entries as a stream, each page read when it is needed. */
    public Stream<T> stream() {
        return StreamSupport.stream(spliterator(), false);
    }
}
