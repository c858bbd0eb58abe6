/**
 * Types of the API. They are generated from the OpenAPI document of the service.
 *
 * <p>Records of requests have a builder: use it, because later versions add components. Records of answers may get
 * components too.
 */
@NullMarked
package io.noroshi.server.types;

import org.jspecify.annotations.NullMarked;
