//! Prints the pools of reserved huge pages and the processes that use them: `cargo run -p pool --example pools`.

use kernel::{KernelError, Root};

fn main() -> Result<(), KernelError> {
    println!("{:#?}", pool::View::read(&Root::host())?);
    Ok(())
}
