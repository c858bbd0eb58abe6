//! Several nodes on one database: one order of commits over all of them.
