/** Client of Noroshi for devices. {@link io.noroshi.client.NoroshiClient} is where to begin. */
@NullMarked
package io.noroshi.client;

import org.jspecify.annotations.NullMarked;
