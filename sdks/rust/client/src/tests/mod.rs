//! Tests of the whole client.

pub(crate) mod probe;
pub(crate) mod vectors;

#[derive(Default)]
pub(crate) struct Observer;
impl Observer {
    pub(crate) fn see(&self, _: &crate::protocol::Effect) {}
}
