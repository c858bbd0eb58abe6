//! Renders a profile as a flame graph: one self-contained SVG.

use crate::failure::Failure;

/// Fails if this build cannot render flame graphs.
#[cfg(feature = "profiling")]
pub(super) fn available() -> Result<(), Failure> {
    Ok(())
}

/// Fails if this build cannot render flame graphs.
#[cfg(not(feature = "profiling"))]
pub(super) fn available() -> Result<(), Failure> {
    Err(Failure::failed(
        "this program was built without flame graphs (feature `profiling`); --out FILE.pb.gz writes the profile instead",
    ))
}

#[cfg(feature = "profiling")]
pub(super) fn render(pprof: &[u8]) -> Result<Vec<u8>, Failure> {
    use inferno::flamegraph::{self, Direction, Options};

    let folded =
        noroshi_profiling::folded::fold(pprof).map_err(|error| Failure::failed(error.to_string()))?;
    if folded.sum == 0 {
        return Err(Failure::failed("the profile has no samples: the node was idle"));
    }
    let (title, factor, count) = match folded.unit.as_str() {
        "nanoseconds" => ("CPU time by thread and function", 1e-6, "ms"),
        "bytes" => ("Memory in use by allocation site", 1.0 / 1_024.0, "KiB"),
        _ => ("Profile", 1.0, folded.unit.as_str()),
    };
    let mut options = Options::default();
    options.title = title.to_owned();
    // Root at the top, where a browser starts: stacks of inlined calls are taller than a window.
    options.direction = Direction::Inverted;
    options.subtitle = Some(format!("{} {count} of {}", (folded.sum as f64 * factor).round(), folded.what));
    options.count_name = count.to_owned();
    options.factor = factor;
    options.hash = true;
    options.min_width = 0.2;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| Failure::failed(format!("cannot render the flame graph: {error}")))?;
    Ok(svg)
}

#[cfg(not(feature = "profiling"))]
pub(super) fn render(_: &[u8]) -> Result<Vec<u8>, Failure> {
    available().map(|()| Vec::new())
}
