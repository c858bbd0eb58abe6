//! Messages on their way to connections: mailboxes, encodings shared by many connections, and the order of delivery.

pub(crate) mod mail;
pub(crate) mod marks;
pub(crate) mod offering;
pub(crate) mod overtake;
pub(crate) mod recent;
pub(crate) mod ring;
