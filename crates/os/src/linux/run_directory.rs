//! `/run/hugepilot`: what lasts until the machine is shut down.
//!
//! Owns: the directory, and its rights. Never touches: what lies in it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Where it is.
pub const RUN_DIRECTORY: &str = "/run/hugepilot";

/// Makes the run directory, or the one that stands for it, unless it is there. Everybody may search it for the control socket, whatever
/// the umask says.
///
/// Errors: the directory cannot be created, or its mode cannot be set (`EACCES`, `EROFS`, `ENOSPC`).
pub fn ensure(directory: &Path) -> io::Result<()> {
    if directory.exists() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_may_read_it_and_what_is_there_stays() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        let mode = || fs::metadata(&directory).unwrap().permissions().mode() & 0o777;
        ensure(&directory).unwrap();
        assert_eq!(mode(), 0o755);
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        ensure(&directory).unwrap();
        assert_eq!(mode(), 0o700);
    }
}
