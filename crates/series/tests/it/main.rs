//! The time series on a real store: rows of several nodes, sums, gaps, bounds, and live figures.

mod live;
mod recording;
mod world;
