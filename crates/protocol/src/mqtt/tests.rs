//! Tests of both layers separately: the codec with the specification's examples, malformed input and round
//! trips; the conversation with dialogues and random packets.

mod codec;
mod delivery;
mod dialogue;
mod machine;
mod malformed;
mod peer;
mod publishing;
mod sessions;
