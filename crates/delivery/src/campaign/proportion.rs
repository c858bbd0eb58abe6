//! Statistics of proportions: how certain one is, and whether two differ. Pure.
//!
//! One proportion: the score interval of Wilson, "Probable Inference, the Law of Succession, and Statistical
//! Inference", Journal of the American Statistical Association 22 (1927). Two: the hybrid score interval of Newcombe,
//! "Interval estimation for the difference between independent proportions: comparison of eleven methods", Statistics
//! in Medicine 17 (1998), method 10, which combines the intervals of the two. Both hold for small counts and for 0 and
//! 1, where the usual normal interval does not. The p-value is that of the pooled z-test (the chi-square test without
//! correction).

/// The 97.5 % quantile of the normal distribution, for 95 % intervals.
const Z: f64 = 1.959_963_984_540_054;

/// `count` out of `of`, never more than `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    count: u64,
    of: u64,
}

/// An estimate with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// How one proportion differs from another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The first minus the second, from -1 to 1.
    pub estimate: Estimate,
    /// The two-sided p-value: how often chance would cause a difference this large if there was none.
    pub p_value: f64,
}

impl Share {
    pub fn new(count: u64, of: u64) -> Self {
        Self { count: count.min(of), of }
    }

    pub fn count(self) -> u64 {
        self.count
    }

    /// `None` without any devices.
    pub fn estimate(self) -> Option<Estimate> {
        if self.of == 0 {
            return None;
        }
        let (n, p, z2) = (self.of as f64, self.value(), Z * Z);
        let (centre, half) = (p + z2 / (2.0 * n), Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt());
        let scale = 1.0 + z2 / n;
        // Exact at the ends, where the computed value may have a rounding error.
        let low = if self.count == 0 { 0.0 } else { (centre - half) / scale };
        let high = if self.count == self.of { 1.0 } else { (centre + half) / scale };
        Some(Estimate { value: p, low, high })
    }

    /// How this differs from `other`; `None` if one of them has no devices.
    pub fn against(self, other: Self) -> Option<Difference> {
        let (this, that) = (self.estimate()?, other.estimate()?);
        let value = this.value - that.value;
        let below = (this.value - this.low).hypot(that.high - that.value);
        let above = (this.high - this.value).hypot(that.value - that.low);
        let estimate = Estimate { value, low: value - below, high: value + above };
        Some(Difference { estimate, p_value: self.p_value(other) })
    }

    fn value(self) -> f64 {
        self.count as f64 / self.of as f64
    }

    fn p_value(self, other: Self) -> f64 {
        let (n, m) = (self.of as f64, other.of as f64);
        let pooled = (self.count as f64 + other.count as f64) / (n + m);
        let deviation = (pooled * (1.0 - pooled) * (1.0 / n + 1.0 / m)).sqrt();
        // All or none on both sides: there is no difference.
        match deviation > 0.0 {
            true => erfc((self.value() - other.value()).abs() / deviation / std::f64::consts::SQRT_2),
            false => 1.0,
        }
    }
}

impl Difference {
    /// Whether the interval excludes zero.
    pub fn is_distinguishable(&self) -> bool {
        self.estimate.low > 0.0 || self.estimate.high < 0.0
    }
}

/// The complementary error function, for x >= 0. Abramowitz and Stegun, "Handbook of Mathematical Functions": the
/// series 7.1.6 where it needs few terms, otherwise the continued fraction 7.1.14.
fn erfc(x: f64) -> f64 {
    let scale = (-x * x).exp() / std::f64::consts::PI.sqrt();
    if x < 2.0 {
        // 2x/√π exp(-x²) Σ (2x²)^n / (1·3·…·(2n+1)): below 2 the 60th term is under 1e-17 of the sum.
        let (mut term, mut sum) = (1.0, 1.0);
        for n in 1..60 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        return (2.0 * x * scale).mul_add(-sum, 1.0);
    }
    // x + (1/2)/(x + 1/(x + (3/2)/(x + …))), from the inside.
    let fraction = (1..=120).rev().fold(x, |inner, n| x + f64::from(n) / 2.0 / inner);
    scale / fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(computed: f64, published: f64, digits: i32) {
        assert!((computed - published).abs() <= 0.5001 * 10_f64.powi(-digits), "{computed}, not {published}");
    }

    #[test]
    fn one_proportion_has_wilsons_interval() {
        // Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table
        // I.
        for (count, of, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let estimate = Share::new(count, of).estimate().expect("of somebody");
            near(estimate.low, low, 4);
            near(estimate.high, high, 4);
            near(estimate.value, count as f64 / of as f64, 12);
        }
        let all = Share::new(20, 20).estimate().expect("of somebody");
        assert_eq!((all.value, all.high), (1.0, 1.0));
        near(all.low, 1.0 - 0.1611, 4);
        assert_eq!(Share::new(0, 0).estimate(), None);
    }

    #[test]
    fn two_proportions_have_newcombes_interval() {
        // The paper's table II, method 10: (a) to (h).
        for (one, other, low, high) in [
            ((56, 70), (48, 80), 0.0524, 0.3339),
            ((9, 10), (3, 10), 0.1705, 0.8090),
            ((6, 7), (2, 7), 0.0582, 0.8062),
            ((5, 56), (0, 29), -0.0381, 0.1926),
            ((0, 10), (0, 20), -0.1611, 0.2775),
            ((0, 10), (0, 10), -0.2775, 0.2775),
            ((10, 10), (0, 20), 0.6791, 1.0),
            ((10, 10), (0, 10), 0.6075, 1.0),
        ] {
            let difference = Share::new(one.0, one.1).against(Share::new(other.0, other.1)).expect("two");
            near(difference.estimate.low, low, 4);
            near(difference.estimate.high, high, 4);
            assert_eq!(difference.is_distinguishable(), low > 0.0);
            let turned = Share::new(other.0, other.1).against(Share::new(one.0, one.1)).expect("two");
            near(turned.estimate.low, -difference.estimate.high, 12);
            assert_eq!(turned.is_distinguishable(), difference.is_distinguishable());
        }
        assert_eq!(Share::new(1, 2).against(Share::new(0, 0)), None);
    }

    #[test]
    fn p_values_are_those_of_the_chi_square_test() {
        let p = |one: (u64, u64), other: (u64, u64)| {
            Share::new(one.0, one.1).against(Share::new(other.0, other.1)).expect("two").p_value
        };
        // 56 of 70 and 48 of 80: chi-square = 150 (56·32 - 14·48)² / (70·80·104·46) = 7.02341, one degree of freedom.
        near(p((56, 70), (48, 80)), 0.008_045, 5);
        near(p((10, 20), (10, 20)), 1.0, 12);
        near(p((0, 10), (0, 20)), 1.0, 12);
        near(p((10, 10), (20, 20)), 1.0, 12);
        assert!(p((900, 1_000), (100, 1_000)) < 1e-200);
    }

    #[test]
    fn the_error_function_is_that_of_the_tables() {
        // Abramowitz and Stegun, table 7.1; the last two by the asymptotic 7.1.23.
        for (x, published) in
            [(0.0, 1.0), (0.5, 0.479_500_122_2), (1.0, 0.157_299_207_1), (1.5, 0.033_894_853_5)]
        {
            near(erfc(x), published, 10);
        }
        near(erfc(2.0) / 4.677_734_981e-3, 1.0, 9);
        near(erfc(2.0 - 1e-12) / erfc(2.0), 1.0, 9);
        near(erfc(5.0) / 1.537_459_794e-12, 1.0, 9);
        assert!(erfc(40.0) >= 0.0);
    }

    #[test]
    fn a_count_is_limited_to_the_total() {
        assert_eq!(Share::new(7, 5), Share::new(5, 5));
    }
}
