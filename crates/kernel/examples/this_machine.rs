//! What this machine's kernel says about memory and huge pages: `cargo run -p hugepilot-kernel --example this_machine`.

use kernel::memory::Meminfo;
use kernel::thp::Thp;
use kernel::{KernelError, Root};

fn main() -> Result<(), KernelError> {
    let root = Root::host();
    let memory = Meminfo::read(&root)?;
    println!("{} of {} are available", memory.available, memory.total);
    match Thp::read(&root)? {
        Some(thp) => println!("{thp:#?}"),
        None => println!("the kernel has no transparent huge pages"),
    }
    Ok(())
}
