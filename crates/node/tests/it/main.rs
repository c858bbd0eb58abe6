//! What one node promises before it serves: its configuration, and the shape of the workspace.

mod config;
mod documentation;
mod layers;
mod prose;
mod tidy;
mod unused;
