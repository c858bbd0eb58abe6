//! The paths of the gateway, such as `GET /v1/connect`, on a node without one.

use crate::error::{Code, Problem};

pub(crate) async fn misdirected() -> Problem {
    Problem::new(Code::Misdirected, "this node does not have the role gateway and accepts no devices")
}
