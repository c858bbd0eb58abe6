package io.noroshi.examples

import io.noroshi.client.NoroshiClient
import io.noroshi.client.State
import io.noroshi.server.JwtSigner
import io.noroshi.server.Noroshi
import io.noroshi.server.ProblemException
import io.noroshi.server.types.Notification
import io.noroshi.server.types.Shown
import io.noroshi.server.types.To
import io.noroshi.testing.Node
import java.util.concurrent.CompletableFuture
import java.util.concurrent.TimeUnit.SECONDS
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Test

/** Both libraries in Kotlin, which checks their nullability. */
class KotlinTest {
    @Test
    fun `sends and receives`() {
        Node.start().use { node ->
            val noroshi = Noroshi.builder(node.url(), Node.KEY).build()
            val jwts = JwtSigner.hs256(Node.JWT_SECRET).build()
            val title = CompletableFuture<String>()
            val connected = CompletableFuture<State>()
            NoroshiClient.builder(node.url()) { jwts.sign("u1", "kotlin") }.build().use { client ->
                client.onState { state -> if (state.isConnected) connected.complete(state) }
                client.onMessage { message ->
                    // `title` may be null: Kotlin does not compile this without the default.
                    title.complete(message.title() ?: "none")
                }
                client.connect()
                val device: String? = connected.get(60, SECONDS).device()
                assertEquals("kotlin", device)
                val receipt =
                    noroshi.publish(
                        Notification.builder()
                            .to(To.users("u1"))
                            .notification(Shown.builder().title("Hello").build())
                            .build(),
                    )
                val id: String = receipt.id()
                assertEquals("Hello", title.get(60, SECONDS))
                assertEquals(id, noroshi.notifications().get(id).id())
                assertEquals(1, noroshi.devices().list().count { it.device() == "kotlin" })
            }
            val problem = assertThrows(ProblemException::class.java) { noroshi.devices().get("nobody") }
            assertEquals("not_found", problem.code())
        }
    }
}
