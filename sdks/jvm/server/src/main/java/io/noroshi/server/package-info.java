/** The API of Noroshi for backends. {@link io.noroshi.server.Noroshi} is where to begin. */
@NullMarked
package io.noroshi.server;

import org.jspecify.annotations.NullMarked;
