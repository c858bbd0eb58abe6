package io.noroshi.testing;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A TCP proxy in front of a node, which simulates networks that break or stall. */
public final class Proxy implements AutoCloseable {
    private final int target;
    public final int port;
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private volatile ServerSocket server;
    private volatile boolean isFrozen;

    public Proxy(int target) throws IOException {
        this.target = target;
        port = Node.freePort();
        listen();
    }

    public String url() {
        return "http://127.0.0.1:" + port;
    }

    private void listen() throws IOException {
        ServerSocket listening = new ServerSocket();
        listening.setReuseAddress(true);
        listening.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        server = listening;
        start(() -> {
            try {
                while (true) accept(listening.accept());
            } catch (IOException closed) {
                // cut or closed
            }
        });
    }

    private void accept(Socket client) {
        sockets.add(client);
        if (isFrozen) return;
        try {
            Socket engine = new Socket(InetAddress.getLoopbackAddress(), target);
            sockets.add(engine);
            start(() -> forward(client, engine));
            start(() -> forward(engine, client));
        } catch (IOException refused) {
            end(client);
        }
    }

    private void forward(Socket from, Socket to) {
        byte[] buffer = new byte[16 << 10];
        try {
            for (int count; (count = from.getInputStream().read(buffer)) >= 0; )
                if (!isFrozen) to.getOutputStream().write(buffer, 0, count);
        } catch (IOException ended) {
            // the other half ends too
        }
        if (isFrozen) return;
        end(from);
        end(to);
    }

    private void end(Socket socket) {
        sockets.remove(socket);
        try {
            socket.close();
        } catch (IOException ended) {
            // it was closed
        }
    }

    /** Nothing arrives any more; connections stay, and new ones are never answered. */
    public void freeze() {
        isFrozen = true;
    }

    /** Breaks connections and refuses new ones. */
    public void cut() throws IOException {
        server.close();
        sockets.forEach(this::end);
    }

    /** Works again. Frozen connections break. */
    public void heal() throws IOException {
        if (isFrozen) {
            isFrozen = false;
            sockets.forEach(this::end);
        }
        if (server.isClosed()) listen();
    }

    @Override
    public void close() throws IOException {
        cut();
    }

    private static void start(Runnable task) {
        Thread thread = new Thread(task, "proxy");
        thread.setDaemon(true);
        thread.start();
    }
}
