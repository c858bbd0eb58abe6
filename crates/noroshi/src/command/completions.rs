//! `noroshi completions <shell>`: prints a completion script for a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Failure> {
        clap_complete::generate(
            self.shell,
            &mut crate::Arguments::command(),
            "noroshi",
            &mut std::io::stdout(),
        );
        Ok(())
    }
}
