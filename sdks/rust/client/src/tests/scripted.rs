//! The process of sdks/scripted-server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::vectors;

pub(super) struct Server {
    process: Child,
    pub(super) url: String,
}

impl Server {
    pub(super) fn start() -> Self {
        let path = vectors::folder().join("../scripted-server/server.mjs");
        let mut process = Command::new("node")
            .arg(path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the scripted server needs Node.js");
        let mut url = String::new();
        let output = process.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut url).expect("a line");
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://"), "run npm ci in sdks/scripted-server");
        Self { process, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
