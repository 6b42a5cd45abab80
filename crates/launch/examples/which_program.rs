//! Prints what kind of program a command is, which decides how it gets huge pages: `cargo run -p hugepilot-launch --example which_program
//! python3`.

use launch::program::{Program, ProgramError};

fn main() -> Result<(), ProgramError> {
    let path = std::env::var_os("PATH");
    for command in std::env::args_os().skip(1) {
        let program = Program::find(&command, path.as_deref(), "", "")?;
        println!("{}: {:?}, linked as {:?}", program.path.display(), program.family, program.linking);
    }
    Ok(())
}
