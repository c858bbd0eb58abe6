// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;

/**
 * A part of an answer.
 *
 * @param name {@code name}
 * @param unit {@code seconds} for times; of counts, what is counted in each step.
 * @param kind {@code kind}
 * @param points One for each step. {@code null}: not measured, or nothing to measure.
 */
public record SeriesFigure(SeriesFigureName name, String unit, SeriesFigureKind kind, List<Double> points) {}
