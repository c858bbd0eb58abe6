//! Both layers, each by itself: the codec by the specification's examples, by malformed input and by round
//! trips; the conversation as dialogues, and by random packets.

mod codec;
mod delivery;
mod dialogue;
mod machine;
mod malformed;
mod peer;
mod publishing;
mod sessions;
