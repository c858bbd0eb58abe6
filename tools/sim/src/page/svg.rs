//! Line plots as SVG; the page's style sheet defines the colours.

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;
/// Approximate number of grid lines.
const TICKS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) color: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct Plot {
    pub(super) title: &'static str,
    pub(super) x: (&'static str, Scale),
    pub(super) y: (&'static str, Scale),
    pub(super) series: Vec<Series>,
}

/// Maps values to positions on an axis.
struct Axis {
    scale: Scale,
    min: f64,
    max: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let positive = |value: &f64| scale == Scale::Linear || *value > 0.0;
        let (least, most) = values
            .filter(|value| value.is_finite())
            .filter(positive)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        let (min, max) = match scale {
            _ if most < least => (0.1, 1.0), // no values
            Scale::Linear => (least.min(0.0), most.max(1e-9)),
            Scale::Log => {
                (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil()).max(least * 10.0))
            }
        };
        Self { scale, min, max, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.min) / (self.max - self.min),
            Scale::Log => (value.max(self.min) / self.min).ln() / (self.max / self.min).ln(),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = nice((self.max - self.min) / TICKS as f64);
                let first = (self.min / step).ceil() as i64;
                let last = (self.max / step + 1e-9).floor() as i64;
                (first..=last).map(|number| number as f64 * step).collect()
            }
            Scale::Log => {
                let (first, last) = (self.min.log10().round() as i32, self.max.log10().round() as i32);
                (first..=last).map(|power| 10f64.powi(power)).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.max(1e-12).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|times| times * power)
        .find(|one| *one >= step * 0.999)
        .unwrap_or(power)
}

/// At most three decimal places.
fn label(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if value.abs() >= 1_000.0 { super::number(value) } else { text.to_owned() }
}

impl Plot {
    pub(super) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = Axis::new(self.x.1, points().map(|(x, _)| *x), LEFT, WIDTH - RIGHT);
        let y = Axis::new(self.y.1, points().map(|(_, y)| *y), HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            super::escape(self.title)
        );
        for tick in y.ticks() {
            let at = y.place(tick);
            svg.push_str(&format!(
                "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"var(--line)\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0,
                label(tick)
            ));
        }
        for tick in x.ticks() {
            let at = x.place(tick);
            svg.push_str(&format!(
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"var(--line)\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 4.0,
                HEIGHT - BOTTOM + 16.0,
                label(tick)
            ));
        }
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text><text x=\"4\" y=\"12\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0,
            super::escape(self.x.0),
            super::escape(self.y.0)
        ));
        for (number, series) in self.series.iter().enumerate() {
            let places: Vec<String> = series
                .points
                .iter()
                .map(|(at, value)| format!("{:.1},{:.1}", x.place(*at), y.place(*value)))
                .collect();
            svg.push_str(&format!(
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"{}\"/>",
                series.color,
                places.join(" ")
            ));
            if self.series.len() > 1 {
                let at = LEFT + 8.0 + 60.0 * number as f64;
                svg.push_str(&format!(
                    "<rect x=\"{at:.1}\" y=\"5\" width=\"10\" height=\"3\" fill=\"{}\"/><text x=\"{:.1}\" y=\"11\">{}</text>",
                    series.color,
                    at + 14.0,
                    series.name
                ));
            }
        }
        svg.push_str("</svg>");
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_range() {
        let axis = Axis::new(Scale::Linear, [0.0, 87.0].into_iter(), 0.0, 100.0);
        assert_eq!(axis.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        let axis = Axis::new(Scale::Log, [0.7, 250.0].into_iter(), 0.0, 100.0);
        assert_eq!(axis.ticks(), [0.1, 1.0, 10.0, 100.0, 1_000.0]);
        assert_eq!((axis.place(0.1), axis.place(1_000.0)), (0.0, 100.0));
    }

    #[test]
    fn empty_and_single_point_plots_can_be_drawn() {
        for points in [vec![], vec![(0.0, 0.0)], vec![(1.0, f64::NAN)]] {
            for scale in [Scale::Linear, Scale::Log] {
                let series = vec![Series { name: "a", color: "red", points: points.clone() }];
                let svg = Plot { title: "t", x: ("x", scale), y: ("y", scale), series }.svg();
                assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
            }
        }
    }
}
