//! Cells, which only a front has: its own handlers replace these.

use crate::error::{Code, Problem};
use crate::request::access::Operator;

/// `GET /v1/cells`, `PATCH /v1/cells/{cell}`, `POST /v1/cells/{cell}/moves`
pub(crate) async fn not_a_front(_: Operator) -> Problem {
    Problem::new(Code::NotFound, "this node is not a front, so it has no cells")
}
