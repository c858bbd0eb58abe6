//! Properties of a node before it serves: its configuration, and the structure of the workspace.

mod config;
mod documentation;
mod layers;
mod oidc;
mod prose;
mod tidy;
mod unused;
