//! The flame graph of a profile, as an SVG that needs nothing but a browser.

use crate::failure::Failure;

/// Whether this build draws.
#[cfg(feature = "profiling")]
pub(super) fn available() -> Result<(), Failure> {
    Ok(())
}

/// Whether this build draws.
#[cfg(not(feature = "profiling"))]
pub(super) fn available() -> Result<(), Failure> {
    Err(Failure::failed(
        "this program was built without flame graphs (feature `profiling`); --out FILE.pb.gz keeps the profile as it is",
    ))
}

#[cfg(feature = "profiling")]
pub(super) fn draw(pprof: &[u8]) -> Result<Vec<u8>, Failure> {
    use inferno::flamegraph::{self, Direction, Options};

    let folded =
        noroshi_profiling::folded::fold(pprof).map_err(|error| Failure::failed(error.to_string()))?;
    if folded.sum == 0 {
        return Err(Failure::failed("nothing was sampled: the node did not work meanwhile"));
    }
    let (title, factor, count) = match folded.unit.as_str() {
        "nanoseconds" => ("CPU time by thread and function", 1e-6, "ms"),
        "bytes" => ("Memory in use, by who allocated it", 1.0 / 1_024.0, "KiB"),
        _ => ("Profile", 1.0, folded.unit.as_str()),
    };
    let mut options = Options::default();
    options.title = title.to_owned();
    // The whole is at the top, where a browser begins: stacks of inlined calls are higher than any window.
    options.direction = Direction::Inverted;
    options.subtitle = Some(format!("{} {count} of {}", (folded.sum as f64 * factor).round(), folded.what));
    options.count_name = count.to_owned();
    options.factor = factor;
    options.hash = true;
    options.min_width = 0.2;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| Failure::failed(format!("it cannot be drawn: {error}")))?;
    Ok(svg)
}

#[cfg(not(feature = "profiling"))]
pub(super) fn draw(_: &[u8]) -> Result<Vec<u8>, Failure> {
    available().map(|()| Vec::new())
}
