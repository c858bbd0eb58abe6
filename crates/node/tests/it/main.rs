//! What one node promises before it serves: its configuration, and the shape of the workspace.

mod config;
mod documentation;
mod module_layers;
mod tidy;
